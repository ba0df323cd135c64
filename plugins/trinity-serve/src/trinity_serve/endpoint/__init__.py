"""The endpoint: the model of a run behind the HTTP interface that agents speak.

agent --HTTP--> server --key--> Session --ask--> ModelWrapper --> engine
                                   |  records what was served
                                   +--> extract_experience_from_history()
"""
