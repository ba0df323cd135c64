"""What a rollout engine refuses though it runs is a notice of the check."""

from textwrap import dedent

from trinity.common.config import check, load_config, resolve
from trinity.extend import PluginManager, set_manager

PLUGIN = """
    from trinity.engines.transformers_engine import TransformersEngine
    from trinity.extend import ComponentSpec, hookimpl


    class Narrow(TransformersEngine):
        def __init__(self, *, model_path, max_model_len, enforce_eager=False):
            super().__init__(model_path=model_path, max_model_len=max_model_len)

        @staticmethod
        def limits(*, enforce_eager=False, **_):
            return [f"narrow refuses requests with a structure: enforce_eager is {enforce_eager}."]


    @hookimpl
    def trinity_rollout_engines():
        return {"narrow": ComponentSpec(f"{__name__}:Narrow", provides={"limits"})}
"""


def test_a_limit_is_told_early_and_stops_nothing(tmp_path, cpu, a_run) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "narrow.py").write_text(dedent(PLUGIN))
    before = set_manager(PluginManager.discover(env={}, plugin_dirs=[str(folder)]))
    try:
        rollout = "explorer.rollout_model"
        overrides = [f"{rollout}.engine_type=narrow", f"{rollout}.enforce_eager=true"]
        config = resolve(load_config(a_run(), overrides=overrides), cpu)
        found = [one for one in check(config, cpu) if "narrow refuses" in str(one)]
    finally:
        set_manager(before)

    (said,) = found
    assert (said.path, said.severity) == (f"{rollout}.engine_type", "notice")
    assert "narrow refuses requests with a structure: enforce_eager is True." in str(said)
