"""Replies in the notations of several models, whole and broken, for parsers to read."""

__all__ = ["REPLIES", "TOOL"]

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Return what is known of a word.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["word"],
        },
    },
}
_ARGUMENTS = '{"word": "tea", "count": 2}'
_WHOLE = (
    f'<tool_call>\n{{"name": "look_up", "arguments": {_ARGUMENTS}}}\n</tool_call>',
    f'I look.<tool_call>{{"name": "look_up", "arguments": {_ARGUMENTS}}}</tool_call>' * 2,
    f'{{"name": "look_up", "parameters": {_ARGUMENTS}}}',
    f'[TOOL_CALLS][{{"name": "look_up", "arguments": {_ARGUMENTS}}}]',
    f"[TOOL_CALLS]look_up[ARGS]{_ARGUMENTS}",
    "<tool_call>\n<function=look_up>\n<parameter=word>\ntea\n</parameter>\n<parameter=count>\n2\n"
    "</parameter>\n</function>\n</tool_call>",
    "<tool_call>look_up\n<arg_key>word</arg_key>\n<arg_value>tea</arg_value>\n"
    "<arg_key>count</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    '[look_up(word="tea", count=2), look_up(word="milk")]',
    f"CALL look_up {_ARGUMENTS}",
)
_ODD = (
    "",
    " \n",
    "é😀\ufffd",
    "<think>hm</think>yes",
    "<think>hm",
    "</think>",
    "</tool_call>",
    "<tool_call>",
    "<tool_call></tool_call>",
    '<tool_call>{"name": "look_up"}</tool_call>',
    '<tool_call>{"name": "look_up", "arguments": "{}"}</tool_call>',
    '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "look_up", "arguments": {"word": NaN}}</tool_call>',
    '<tool_call>{"name": "look_up", "arguments": {"word": "\\ud800"}}</tool_call>',
    '<tool_call>{"name": "look_up", "arguments": ' + '{"a":' * 3000 + "</tool_call>",
    "[TOOL_CALLS]",
    "[TOOL_CALLS][1]",
    "[look_up(",
    "[look_up(word=other)]",
    "[look_up('tea')]",
    '{"answer": 46}',
    '{"name": "look_up", "parameters": null}',
    "<|python_tag|>print(1)",
    "<|python_start|>\x00",
    "CALL look_up {",
)
#: texts of replies: whole calls, the same cut, and what is none
REPLIES = (
    *_WHOLE,
    *(text[:place] for text in _WHOLE for place in range(1, len(text), 9)),
    *_ODD,
)
