"""``ConfigManager``: the page that makes a configuration, part by part; subclass it to add some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st
from trinity.common.config import Config

from trinity_studio.config_registry.config_registry import CONFIG_GENERATORS
from trinity_studio.studio.document import NOTHING, merged, yaml_text
from trinity_studio.studio.entries import Entries
from trinity_studio.studio.extensions import load_generators, shared_paths
from trinity_studio.studio.fields import field_at, fields_of, in_order, model_of
from trinity_studio.studio.findings import Findings, findings
from trinity_studio.studio.output import beside, draw_output
from trinity_studio.studio.places import draw_rows
from trinity_studio.studio.sheet import DOCUMENT, Sheet
from trinity_studio.studio.starting import a_new_document, draw_opening
from trinity_studio.studio.widgets import draw_field, draw_fields, tell_field

if TYPE_CHECKING:
    from trinity_studio.config_registry.config_registry import ConfigGenerators

__all__ = ["ConfigManager"]

MODES = ("Beginner Mode", "Expert Mode")
_TASKSET = "buffer.explorer_input.taskset"
_ROWS = "buffer.trainer_input.experience_buffer"
_OTHERS = "All Others"
_MOST_DRAWN = 3  # times for one change
_SECTIONS = {  # that parts of their own draw
    *("model", "buffer", "data_processor", "explorer", "synchronizer"),
    *("algorithm", "trainer"),
}


class ConfigManager:
    """The configuration page.

    Values are in ``st.session_state``: those of registered settings under their names, those of
    all other keys in the document that is edited. ``draw`` draws the page once.

    Args:
        generators: the settings that are registered.
    """

    def __init__(self, generators: ConfigGenerators = CONFIG_GENERATORS) -> None:
        self.unfinished_fields: set[str] = set()
        self.headings, failures = load_generators(generators)
        self.failures = [*failures, *shared_paths(generators)]
        if DOCUMENT not in st.session_state:
            Sheet().put(a_new_document())
        self.entries = Entries(generators)
        self.entries.follow(Sheet().document)
        self.sheet = Sheet()

    def draw(self) -> None:
        """Draw the page: where it begins, the settings, the YAML that they make."""
        draw_opening(self.sheet)
        for failure in self.failures:
            st.warning(failure)
        self.sheet, before, found = self.judged()
        fields, output = beside()
        with fields:
            self._draw_settings()
        values = self.generate_config()
        after = yaml_text(values)
        if after != before and self._may_draw_again():
            st.rerun()
        st.session_state["_again"] = 0
        if after != before:
            found = _cached_findings(after)
        with output:
            draw_output(self.sheet, values, found, unfinished=self.unfinished_fields)

    def _draw_settings(self) -> None:
        """Draw the settings of the mode that is chosen."""
        st.session_state.setdefault("_mode", MODES[0])
        mode = st.segmented_control(
            "Mode",
            MODES,
            key="_mode",
            required=True,
            label_visibility="collapsed",
            persist_state="session",
        )
        if mode == MODES[1]:
            self.expert_mode()
        else:
            self.beginner_mode()

    def judged(self) -> tuple[Sheet, str, Findings]:
        """Return what to draw on, the file as it would be written, and what the check says."""
        text = yaml_text(self.generate_config())
        found = _cached_findings(text)
        return Sheet(found.problems), text, found

    def beginner_mode(self) -> None:
        """Draw what most runs set."""
        self._beginner_essential_part()
        self._beginner_important_part()

    def expert_mode(self) -> None:
        """Draw every key, one part of them at a time."""
        parts = {
            "Model": self._expert_model_part,
            "Buffer": self._expert_buffer_part,
            "Explorer and Synchronizer": self._expert_explorer_part,
            "Trainer": self._expert_trainer_part,
            _OTHERS: self._expert_others_part,
        }
        st.session_state.setdefault("_part", "Model")
        chosen = st.segmented_control(
            "Part",
            list(parts),
            key="_part",
            required=True,
            label_visibility="collapsed",
            persist_state="session",
        )
        st.header(str(chosen))
        parts[str(chosen)]()

    def get_configs(self, *names: str) -> None:
        """Draw settings side by side, and check those that have a check.

        Args:
            *names: of registered settings, or paths of keys, such as ``buffer.batch_size``.
        """
        draw_rows(
            [name for name in names if self._is_known(name)],
            draw=self._get_config,
            tell=self._tell_config,
            is_hidden=self._is_hidden,
        )

    def _is_known(self, name: str) -> bool:
        """Return whether a name is of a setting, or of a key that was not drawn yet."""
        if name in self.entries.generators:
            return True
        return field_at(name) is not None and name not in self.sheet.drawn

    def _is_hidden(self, name: str) -> bool:
        generators = self.entries.generators
        return name in generators and not generators.get(name).is_visible()

    def _get_config(self, name: str) -> None:
        if name not in self.entries.generators:
            field = field_at(name)
            assert field is not None, name
            draw_field(self.sheet, field)
            return
        entry = self.entries.generators.get(name)
        field = field_at(entry.path) if entry.path else None
        if field is not None and self.entries.is_kept(entry, self.sheet.document):
            draw_field(self.sheet, field)
            return
        self.entries.generators.get_config(name)
        self.entries.generators.get_check(name, self.unfinished_fields)
        self.entries.take_over(entry, self.sheet.document)
        if entry.path is not None:
            self.sheet.drawn.add(entry.path)

    def _tell_config(self, name: str) -> None:
        """Show what is wrong with a setting, below the row that it stands in."""
        path = name
        if name in self.entries.generators:
            path = self.entries.generators.get(name).path or ""
        field = field_at(path) if path else None
        if field is not None:
            tell_field(self.sheet, field)
        elif path:
            self.sheet.tell(path)

    def _registered(self, heading: str) -> None:
        """Draw the settings that plugins add below a heading."""
        self.get_configs(*self.headings.get(heading, ()))

    def _beginner_essential_part(self) -> None:
        st.header("Essential Configs")
        self.get_configs("project", "name", "checkpoint_root_dir", "model_path")
        self.get_configs("mode", "algorithm.algorithm_type")
        with st.container():
            if self._trains_on_rows():
                keys = ("path", "format.prompt_type", "format.messages_key")
                self.get_configs(*(f"{_ROWS}.{key}" for key in keys))
            else:
                self._beginner_tasks()
        self._registered("Essential Configs")

    def _beginner_tasks(self) -> None:
        tasks = self._taskset()
        parts = ("path", "default_workflow_type", "default_reward_fn_type")
        columns = ("format.prompt_key", "format.response_key", "format.system_prompt")
        self.get_configs(*(f"{tasks}.{key}" for key in (*parts, *columns)))

    def _beginner_important_part(self) -> None:
        st.header("Important Configs")
        self.get_configs("total_epochs", "buffer.total_steps", "algorithm.optimizer.lr", "seed")
        self.get_configs("repeat_times", "buffer.batch_size", "train_batch_size")
        self.get_configs("model.max_model_len", "model.max_response_tokens", "model.temperature")
        self.get_configs("cluster.node_num", "cluster.gpu_per_node", "engine_num", "sync_interval")
        self.get_configs("explorer.eval_interval", "save_interval", "monitor.monitor_type")
        self._registered("Important Configs")

    def _expert_model_part(self) -> None:
        self.get_configs("model_path")
        self._registered("Model")
        self._rest("model")

    def _expert_buffer_part(self) -> None:
        self.get_configs("total_epochs", "train_batch_size")
        self._registered("Buffer")
        self._rest("buffer", "data_processor")

    def _expert_explorer_part(self) -> None:
        self.get_configs("engine_num", "sync_interval")
        self._registered("Explorer and Synchronizer")
        self._rest("explorer", "synchronizer")

    def _expert_trainer_part(self) -> None:
        self.get_configs("repeat_times", "save_interval")
        self._registered("Trainer")
        self._rest("algorithm", "trainer")

    def _expert_others_part(self) -> None:
        others = [one for one in fields_of(Config) if one.name not in _SECTIONS]
        draw_fields(self.sheet, others)

    def _rest(self, *sections: str) -> None:
        """Draw the keys of sections that nothing has drawn yet."""
        for section in sections:
            if len(sections) > 1 and section != sections[0].lower():
                st.subheader(section.replace("_", " ").capitalize())
            model = model_of(section)
            assert model is not None, section
            draw_fields(self.sheet, fields_of(model, section))
            with st.container():
                self.sheet.tell(section)

    def _trains_on_rows(self) -> bool:
        return bool(st.session_state["mode"] == "train")

    def _taskset(self) -> str:
        """Return where the first training tasks stand in this document."""
        several = self.sheet.document.get("buffer.explorer_input.tasksets")
        has_one = self.sheet.document.get(_TASKSET) is not NOTHING
        return "buffer.explorer_input.tasksets.0" if several and not has_one else _TASKSET

    def generate_config(self) -> dict[str, Any]:
        """Return the settings of the whole file: the document, then what each part adds."""
        parts = {
            "model": self._gen_model_config(),
            "buffer": self._gen_buffer_config(),
            "explorer": self._gen_explorer_config(),
            "synchronizer": self._gen_synchronizer_config(),
            "algorithm": self._gen_algorithm_config(),
            "trainer": self._gen_trainer_config(),
        }
        given = {name: part for name, part in parts.items() if part}
        values = merged(self.sheet.document.values, given)
        return in_order(values) if self.sheet.document.is_fresh else values

    def _gen_model_config(self) -> dict[str, Any]:
        return {}

    def _gen_buffer_config(self) -> dict[str, Any]:
        """Return the tasks of a step, where nobody gave them: they fill one train step."""
        document = self.sheet.document
        size, path = document.get("buffer.train_batch_size"), "buffer.batch_size"
        if not document.is_fresh or size is NOTHING or document.get(path) is not NOTHING:
            return {}
        return {"batch_size": max(1, st.session_state["train_batch_size"] // self._repeat_times())}

    def _repeat_times(self) -> int:
        given = self.sheet.document.get("algorithm.repeat_times")
        return given if isinstance(given, int) and given > 0 else 1

    def _gen_explorer_config(self) -> dict[str, Any]:
        return {}

    def _gen_synchronizer_config(self) -> dict[str, Any]:
        return {}

    def _gen_algorithm_config(self) -> dict[str, Any]:
        return {}

    def _gen_trainer_config(self) -> dict[str, Any]:
        return {}

    def _may_draw_again(self) -> bool:
        """Return whether the page may be drawn once more at once; then it stands."""
        st.session_state["_again"] = st.session_state.get("_again", 0) + 1
        return bool(st.session_state["_again"] <= _MOST_DRAWN)


def _cached_findings(text: str) -> Findings:
    """Return what the check says of a text; it is asked again when the text is another one."""
    known = st.session_state.get("_findings")
    if known is None or known[0] != text:
        known = (text, findings(text))
        st.session_state["_findings"] = known
    return known[1]
