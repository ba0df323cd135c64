"""What a contributor runs: ``python -m nox -l`` lists it.

Every session shares one environment, ``.nox/shared``, made once with the versions of
``constraints.txt`` and brought up to date when those or a ``pyproject.toml`` change. The exceptions
are ``wheels`` and ``minimums``, which exist to start from nothing, and ``monitors``, ``lm_eval``,
``sdks``, ``tinker`` and ``chat_templates``, whose packages nothing else needs.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))
from environments import (
    ALFWORLD,
    BUILT,
    CONSTRAINTS,
    DISTRIBUTIONS,
    EDITABLE,
    EXTRAS,
    GROUPS,
    QUIET_PIP,
    ROOT,
    shared_environment,
)

nox.needs_version = ">=2024.10"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "virtualenv"

TORCH = next(one for one in CONSTRAINTS.read_text().split() if one.startswith("torch=="))
MINIMUMS = ROOT / "packages" / "trinity-core" / "minimums.txt"
# One thread for small models; nothing is fetched while a test or an example runs.
RUN_ENV = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

# Files in their order, the long ones in the middle: the processors end together. One process more
# than there are processors, which computes while tests of the others wait.
SIDE_BY_SIDE = (
    f"--numprocesses={min(8, (os.cpu_count() or 1) + 1)}",
    "--dist=loadfile",
    "--no-loadscope-reorder",
)

IMPORTED_BY_TESTS = (  # side by side: the two have little in common
    """
import torch.distributed.checkpoint, torch.distributed.fsdp
from transformers import AutoModelForCausalLM, AutoTokenizer
import transformers.models.llama.modeling_llama, transformers.models.qwen2.modeling_qwen2, peft
""",
    """
import datasets, hypothesis, httpx, math_verify, openai.types.chat, ray, streamlit, uvicorn
import tensorboard.backend.event_processing.event_accumulator
""",
)

TWO_HOSTS = "tests/e2e/test_two_hosts.py"
TESTS_THAT_BUILD = "packages/trinity-core/tests/cli/test_plugins_new.py"

SDKS = {  # of agents; oldest: the clients that the endpoint promises to work with
    "newest": (
        "openai-agents",
        "langgraph",
        "langchain-openai",
        "pydantic-ai-slim[openai]",
        "smolagents[openai]",
        "anthropic",
    ),
    "oldest": ("openai==2.25.0", "anthropic==0.60.0"),
}

OLDEST_TINKER = "tinker==0.34.0"  # that the server promises to work with

COOKBOOK = (  # of the Tinker API: the package, and what its recipes import
    *("tinker-cookbook==0.6.1", "blobfile", "chz", "cloudpickle", "datasets", "math-verify"),
    *("pillow", "pylatexenc", "sympy", "termcolor", "tiktoken"),
)

FIND = """
import sys
from trinity.errors import TrinityError
from trinity.extend import get_manager

try:
    get_manager().find(*sys.argv[1].split("/")).load()
except TrinityError as error:
    sys.exit(str(error))
"""
COMMANDS_ELSEWHERE = {  # distribution: one that works with it, the core and what it needs
    "trinity-testing": ("trinity", "plugins", "check", "testing"),
    "trinity-algorithms": ("python", "-c", FIND, "algorithm/gspo"),
    "trinity-debug": ("trinity", "perf", "--help"),
    "trinity-lab": ("trinity", "compare", "--help"),
    "trinity-ledger": ("python", "-c", FIND, "storage/sql"),
    "trinity-sandbox": ("python", "-c", FIND, "workflow/code_workflow"),
    "trinity-serve": ("trinity", "serve", "--help"),
    "trinity-studio": ("trinity", "view", "--help"),
    "trinity-tinker": ("trinity", "tinker", "--help"),
}

HEAVY = (  # what CI does not run, the quick ones first
    *("lint", "types", "docs", "broken_plugin", "chat_templates", "monitors", "lm_eval"),
    *("postgres", "hosts", "studio", "gpu_rehearsal"),
    *(
        "sdks",
        "tinker",
        "alfworld",
        "harbor",
        "openenv",
        "verifiers",
        "agentscope",
        "vllm",
        "wheels",
        "minimums",
        "acceptance",
    ),
)

QUICKSTART = "examples/quickstart/quickstart.yaml"


@nox.session(venv_backend="none")
def quickstart(session: nox.Session) -> None:
    """Make a tiny model and a dataset, train on them, show what was learned."""
    bin_dir = shared_environment(session, "run")
    started = time.monotonic()
    session.run(bin_dir / "python", "examples/quickstart/prepare.py", env=RUN_ENV)
    session.run(bin_dir / "trinity", "run", "--local", "--config", QUICKSTART, env=RUN_ENV)
    session.log(f"model, data, training: {time.monotonic() - started:.0f} s in all")


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the tests: ``nox -s tests -- packages/trinity-core/tests/buffer -x``.

    Without arguments, all of them, their files shared out among the processors.
    """
    pytest(session, *(session.posargs or SIDE_BY_SIDE))


@nox.session(venv_backend="none")
def acceptance(session: nox.Session) -> None:
    """Run the tests that take minutes, two files at a time: more seeds, more data, more kills."""
    two = ("--numprocesses=2", "--dist=loadfile", f"--ignore={TWO_HOSTS}")
    pytest(session, "-m", "acceptance", *two, *session.posargs)


@nox.session(venv_backend="none")
def hosts(session: nox.Session) -> None:
    """Run over two machines, network namespaces of this one, and lose one of them; needs root."""
    if shutil.which("ip") is None:
        session.error("the program ip is missing; on Debian: apt-get install iproute2")
    pytest(session, "-m", "acceptance", "--log-cli-level=INFO", TWO_HOSTS, *session.posargs)


@nox.session(venv_backend="none")
def golden(session: nox.Session) -> None:
    """Write the texts in tests/golden anew; review the difference before you commit it."""
    pytest(session, *session.posargs, TRINITY_UPDATE_GOLDEN="1")
    session.run("git", "diff", "--stat", "--", "tests/golden", external=True)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Check style, format and the import direction; ``nox -s lint -- --fix`` mends what it can."""
    bin_dir = shared_environment(session, "run", "dev")
    session.run(bin_dir / "ruff", "check", *session.posargs, ".")
    session.run(bin_dir / "ruff", "format", *([] if session.posargs else ["--check"]), ".")
    session.run(bin_dir / "lint-imports", env={"PYTHONPATH": str(ROOT / ALFWORLD / "src")})


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Check the types of the public packages."""
    bin_dir = shared_environment(session, "run", "dev")
    session.run(bin_dir / "mypy")


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Write the reference pages from the code, build docs/_build; a warning is an error."""
    bin_dir = shared_environment(session, "run", "dev", "docs")
    session.run(bin_dir / "python", "docs/generate.py")
    sphinx = [bin_dir / "python", "-m", "sphinx", "-W", "-E", "--keep-going", "-q"]
    session.run(*sphinx, "-b", "html", "docs", "docs/_build/html")
    foreign = pages_that_load_from_elsewhere(ROOT / "docs" / "_build" / "html")
    if foreign:
        session.error(f"pages that load something from the network: {', '.join(foreign)}")
    session.log("open docs/_build/html/index.html")


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Say where the time of a step went, in the last run or in the metrics.jsonl that is named."""
    bin_dir = shared_environment(session, "run")
    runs = sorted(ROOT.glob("checkpoints/**/monitor/metrics.jsonl"), key=os.path.getmtime)
    metrics = session.posargs or runs[-1:]
    if not metrics:
        session.error("there is no run under checkpoints/ yet: nox -s quickstart makes one")
    session.run(bin_dir / "trinity", "perf", *metrics)


@nox.session(venv_backend="none")
def build(session: nox.Session) -> None:
    """Build the wheel and the sdist of each distribution into dist/."""
    bin_dir = shared_environment(session, "dev")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    for folder in BUILT:
        command = [bin_dir / "python", "-m", "build", "--outdir", "dist", folder]
        session.run(*command, silent=True, external=True)
    session.log("dist/: " + ", ".join(sorted(path.name for path in (ROOT / "dist").iterdir())))


@nox.session(reuse_venv=False)
def wheels(session: nox.Session) -> None:
    """Install the core's wheel into an empty environment, then others; use them elsewhere."""
    build(session)
    core_with_each(session)
    session.install("-c", str(CONSTRAINTS), *map(str, sorted((ROOT / "dist").glob("*.whl"))))
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        session.run("trinity", "plugins", "list", env=RUN_ENV)
        data = {"ALFWORLD_DATA": f"{folder}/alfworld", "WEBSHOP_DATA": f"{folder}/webshop"}
        for name, count in {"alfworld": "10", "webshop": "100"}.items():
            setup = ["trinity", "plugins", "setup", name, "--generate", count]
            session.run(*setup, env={**RUN_ENV, **data})
        session.run("trinity", "plugins", "check", env={**RUN_ENV, **data})
        session.run("trinity", "examples", "copy", "quickstart", env=RUN_ENV)
        short = ["--config", "examples/quickstart/quickstart.yaml", "--set", "buffer.total_steps=2"]
        embedded = ["--set", "explorer.rollout_model.engine_type=transformers"]
        session.run("trinity", "run", "--local", *short, *embedded, env=RUN_ENV)


def core_with_each(session: nox.Session) -> None:
    """Fail where a command of another distribution does not work with it, or is not told without.

    Leaves the core in the environment, and what the last one needs of ours.
    """
    built = {path.name.partition("-")[0]: path for path in (ROOT / "dist").glob("*.whl")}
    session.install("-c", str(CONSTRAINTS), str(built["trinity_core"]))
    for name, command in COMMANDS_ELSEWHERE.items():
        told = session.run(*command, success_codes=[1], silent=True, env=RUN_ENV)
        if f"Run: python -m pip install {name}" not in str(told):
            session.error(f"without {name}, {' '.join(command)} printed:\n{told}")
        wheel = str(built[name.replace("-", "_")])
        links = str(ROOT / "dist")  # of ours that it needs; the last one may leave them there
        session.install("-c", str(CONSTRAINTS), "--find-links", links, wheel)
        session.run(*command, env=RUN_ENV, silent=True)
        session.run("python", *QUIET_PIP[:-2], "uninstall", "-qq", "-y", name)


@nox.session(reuse_venv=True)
def minimums(session: nox.Session) -> None:
    """Run the fast tests with the lowest versions that the core promises to work with."""
    session.install("-c", str(MINIMUMS), *itertools.chain(*EDITABLE.values()))
    # The reference holds the help texts of the newest typer; building needs the newest packaging;
    # the others ask for nox, or for distributions that are left out here.
    ignored = [
        *("tests/architecture/test_docs.py", "tests/e2e/test_broken_plugin.py"),
        *("tests/test_full_run.py", "tests/architecture/test_dependency_bounds.py"),
        "packages/trinity-core/tests/extend/test_known.py",
        "plugins/trinity-compat-rft/tests/test_readme.py",
    ]
    help_text = "test_plugins_assets.py::test_the_help_of_setup_lists_the_options_of_the_plugin"
    fast = ["-m", "not slow and not acceptance and not sdk"]
    fast += [f"--deselect=packages/trinity-core/tests/cli/{help_text}"]
    fast += [f"--ignore={name}" for name in (*ignored, TESTS_THAT_BUILD)]
    session.run("python", "-m", "pytest", *fast, env=RUN_ENV)


@nox.session(reuse_venv=True)
def monitors(session: nox.Session) -> None:
    """Write to W&B, MLflow, Trackio and SwanLab, offline, with the real packages."""
    own, extras = "plugins/trinity-monitors", "wandb,mlflow,trackio,swanlab"
    session.install("-c", str(CONSTRAINTS), *GROUPS["run"], "pytest")
    # Not with our constraints: some of these packages need older versions of what we pin.
    session.install("-e", f"{own}[{extras}]")
    store = f"sqlite:///{session.create_tmp()}/mlflow.db"  # no server is needed
    env = {**RUN_ENV, "MLFLOW_TRACKING_URI": store, "TRACKIO_DIR": session.create_tmp()}
    session.run("python", "-m", "pytest", own, *session.posargs, env=env)


@nox.session(reuse_venv=True)
def lm_eval(session: nox.Session) -> None:
    """Evaluate a tiny model on a task file with the real lm-eval, without a network."""
    own = "packages/trinity-lab"
    session.install("-c", str(CONSTRAINTS), *GROUPS["run"], "-e", f"{own}[lm-eval]", "pytest")
    tests = f"{own}/tests/test_harness.py"
    session.run("python", "-m", "pytest", tests, *session.posargs, env=RUN_ENV)


@nox.session(reuse_venv=True)
def vllm(session: nox.Session) -> None:
    """Answer, stop, score and take new weights with the real vLLM, on a CPU."""
    own = "plugins/trinity-engine-vllm"
    session.install("-c", str(CONSTRAINTS), *GROUPS["run"], "-e", own, "uv")
    environments = ROOT / ".nox" / "environments"
    env = {**RUN_ENV, "TRINITY_ENVIRONMENTS": str(environments)}
    session.run("trinity", "plugins", "setup", "vllm", "--environment", env=env)
    folder = "vllm-gpu" if shutil.which("nvidia-smi") else "vllm-cpu"
    python = environments / folder / "bin" / "python"
    kit = ("-e", "packages/trinity-testing", "-e", "packages/trinity-lab", "pytest")
    session.run("uv", "pip", "install", "--python", str(python), *kit)
    chosen = ["-m", "", own, *session.posargs]  # the slow ones, too
    session.run(python, "-m", "pytest", *chosen, env=env, external=True)


@nox.session(reuse_venv=True)
def gpu_rehearsal(session: nox.Session) -> None:
    """Run engine, trainer and whole runs on pretend GPUs, which count waits, copies and bytes."""
    own = ["-e", "packages/trinity-core[lora]", "pytest", "setuptools"]
    session.install("-c", str(CONSTRAINTS), *GROUPS["run"], *own)
    tool = ROOT / "tools" / "pretend_cuda"
    session.run("bash", tool / "build.sh", "python", external=True)
    session.install("--no-build-isolation", "--no-deps", "-e", str(tool))
    env = {**RUN_ENV, "PRETEND_CUDA": "1"}
    chosen = ["-m", "", "-rP", "tests/gpu_rehearsal", *session.posargs]
    session.run("python", "-m", "pytest", *chosen, env=env)


@nox.session(reuse_venv=True)
def studio(session: nox.Session) -> None:
    """Configure by clicking in Chromium, train, kill the studio, stop a run; look at charts."""
    own = "packages/trinity-studio"
    session.install("-c", str(CONSTRAINTS), *GROUPS["run"], "-e", own, "pytest", "playwright")
    names = ("test_in_a_browser", "test_viewer_in_a_browser")
    chosen = ["-m", "acceptance", *(f"{own}/tests/{name}.py" for name in names), *session.posargs]
    session.run("python", "-m", "pytest", *chosen, env=RUN_ENV)


@nox.session(reuse_venv=True)
def postgres(session: nox.Session) -> None:
    """Keep experiences in a PostgreSQL server that this starts and stops; posargs go to pytest."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if os.name == "posix" else []
    if not programs and shutil.which("pg_ctl") is None:
        session.error("PostgreSQL's programs are missing; on Debian: apt-get install postgresql")
    ledger, viewer = "plugins/trinity-ledger", "packages/trinity-studio"
    own = ["-e", f"{ledger}[postgres]", "-e", viewer, "pytest"]
    session.install("-c", str(CONSTRAINTS), *GROUPS["run"], *own)
    names = ("sql_storage", "ledger_groups", "whose_ledger", "damaged_packets", "seal")
    files = [f"{ledger}/tests/test_{name}.py" for name in names]
    chosen = session.posargs or [*files, f"{viewer}/tests/test_ledger_page.py"]
    script = ("scripts/with_postgres.py", *map(str, programs[-1:]))
    session.run("python", *script, "--", "python", "-m", "pytest", *chosen, env=RUN_ENV)


@nox.session(reuse_venv=True)
def chat_templates(session: nox.Session) -> None:
    """Show under which chat templates of a published package chats go on by recorded ids."""
    session.install("-c", str(CONSTRAINTS), *GROUPS["run"], "pytest")
    session.install("--no-deps", "trl>=1.16")  # for its templates alone
    session.run("python", "tests/agents/templates.py", *session.posargs, env=RUN_ENV)
    session.run("python", "-m", "pytest", "tests/agents/test_templates.py", env=RUN_ENV)


@nox.session(reuse_venv=True)
@nox.parametrize("release", ["1.0.12", "1.0.21"])
def agentscope(session: nox.Session, release: str) -> None:
    """Tune AgentScope's agents with the published package, its oldest and its newest release."""
    own = "plugins/trinity-agents-agentscope"
    chosen = ["-e", "plugins/trinity-compat-rft", "-e", f"{own}[agentscope]"]
    session.install(*GROUPS["run"], *chosen, f"agentscope=={release}", "pytest", TORCH)
    session.run("python", "-m", "pytest", own, *session.posargs, env=RUN_ENV)


@nox.session(reuse_venv=True)
def alfworld(session: nox.Session) -> None:
    """Play games of ALFWorld in its own engine, hostile ones too; learn to win them."""
    session.install("-c", str(CONSTRAINTS), *GROUPS["dev"], "-e", ALFWORLD)
    others = sorted(map(str, Path("tests").glob("*/test_*alfworld*.py")))
    chosen = session.posargs or [ALFWORLD, *others, "tests/e2e/test_token_identity.py"]
    session.run("python", "-m", "pytest", "-m", "", *chosen, env=RUN_ENV)


@nox.session(reuse_venv=True)
def harbor(session: nox.Session) -> None:
    """Attack and verify tasks of Harbor in the sandbox; train a tiny model on five of them."""
    if shutil.which("bwrap") is None:
        session.error("the program bwrap is missing; on Debian: apt-get install bubblewrap")
    own = ["-e", "plugins/trinity-sandbox", "-e", "plugins/trinity-envs-harbor", "pytest"]
    session.install("-c", str(CONSTRAINTS), *GROUPS["run"], *own)
    folders = ("plugins/trinity-envs-harbor", "plugins/trinity-sandbox")
    session.run("trinity", "harbor", "oracle", "examples/harbor/tasks", env=RUN_ENV)
    chosen = ["-m", "", *(session.posargs or folders)]  # the training, too
    session.run("python", "-m", "pytest", *chosen, env=RUN_ENV)


@nox.session(reuse_venv=True)
def openenv(session: nox.Session) -> None:
    """Act in servers of the real OpenEnv; train ten steps in which one of them is killed."""
    with_its_environment(session, "openenv")


@nox.session(reuse_venv=True)
def verifiers(session: nox.Session) -> None:
    """Run tasksets of the real verifiers; train twenty steps on one of twelve lines."""
    with_its_environment(session, "verifiers")


def with_its_environment(session: nox.Session, name: str) -> None:
    """Run the tests of a plugin that has an environment of its own, with that made."""
    own = f"plugins/trinity-envs-{name}"
    session.install("-c", str(CONSTRAINTS), *GROUPS["run"], "-e", own, "pytest", "uv")
    env = {**RUN_ENV, "TRINITY_ENVIRONMENTS": str(ROOT / ".nox" / "environments")}
    session.run("trinity", "plugins", "setup", name, "--environment", env=env)
    session.run("python", "-m", "pytest", own, *session.posargs, env=env)


@nox.session(reuse_venv=True)
@nox.parametrize("clients", ["newest", "oldest"])
def sdks(session: nox.Session, clients: str) -> None:
    """Run the agents of examples/agents with the published SDKs, on a scripted engine."""
    core = "packages/trinity-core"
    session.install("-e", core + EXTRAS[core], *GROUPS["run"][2:], "pytest", TORCH, *SDKS[clients])
    chosen = ["-m", "sdk", *(["-k", "client or command"] if clients == "oldest" else [])]
    session.run("python", "-m", "pytest", "tests/agents", *chosen, *session.posargs, env=RUN_ENV)


@nox.session(reuse_venv=True)
@nox.parametrize("sdk", ["newest", "oldest"])
def tinker(session: nox.Session, sdk: str) -> None:
    """Train and sample with the published Tinker SDK against ``trinity tinker serve``.

    ``nox -s tinker -- tests/test_wire.py`` runs one file.
    """
    own = "packages/trinity-tinker"
    core = "packages/trinity-core"
    session.install(
        *("-c", str(CONSTRAINTS), "-e", core + EXTRAS[core], *GROUPS["run"][2:]),
        *("-e", "packages/trinity-studio", "-e", f"{own}[sdk]", "pytest", *COOKBOOK[1:]),
    )
    session.install("--no-deps", COOKBOOK[0])  # a dependency has no release for every platform
    env = {**RUN_ENV, "TINKER_TELEMETRY": "0"}
    files = [name for name in session.posargs if Path(own, name).exists()]
    options = [option for option in session.posargs if option not in files]
    if sdk == "oldest":
        session.install(OLDEST_TINKER)
        shared = [f"tests/test_{name}.py" for name in ("wire", "sdk_tour", "kill")]
        files = [name for name in shared if name in (files or shared)]
        if not files:
            session.skip("only the newest SDK runs these files")
    tests = [f"{own}/{name}" for name in files] or [own]
    session.run("python", "-m", "pytest", *tests, "-m", "", *options, env=env)


@nox.session(venv_backend="none")
def everything(session: nox.Session) -> None:
    """Run every heavy session, or those named, and note how each ended in docs/reference."""
    chosen = session.posargs or HEAVY
    session.run(sys.executable, "scripts/full_run.py", *chosen, external=True)


@nox.session(venv_backend="none")
def broken_plugin(session: nox.Session) -> None:
    """Install a distribution whose plugin cannot be imported; the command line goes on."""
    bin_dir = shared_environment(session, "run", "dev")
    with tempfile.TemporaryDirectory() as folder:
        source, site = Path(folder, "source"), Path(folder, "site")
        shutil.copytree(ROOT / "tests/e2e/broken_distribution", source)
        session.run(bin_dir / "python", *QUIET_PIP, "--no-deps", "--target", site, source)
        env = {**RUN_ENV, "PYTHONPATH": str(site)}
        trinity = bin_dir / "trinity"
        session.run(trinity, "--help", env=env, silent=True)
        listed = session.run(trinity, "plugins", "list", env=env, success_codes=[0], silent=True)
        session.run(trinity, "plugins", "check", "broken", env=env, success_codes=[1])
        session.run(trinity, "plugins", "show", "opmd", env=env, silent=True)
        strict = {**env, "TRINITY_STRICT_PLUGINS": "1"}
        session.run(trinity, "plugins", "list", env=strict, success_codes=[1, 2, 3])
    if "no_such_module" not in str(listed) or "opmd" not in str(listed):
        session.error(f"the list does not show what is broken and what is not:\n{listed}")
    session.log("the command line lives: --help, list and show work, check finds the fault")


def pages_that_load_from_elsewhere(folder: Path) -> list[str]:
    """Return the pages of which a reader without a network would miss something."""
    loads = re.compile(r"<(?:script|link|img)\b[^>]*\b(?:src|href)=\"(?:https?:)?//")
    pages = sorted(folder.rglob("*.html"))
    return [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))]


def pytest(session: nox.Session, *arguments: str, **env: str) -> None:
    """Run pytest in the shared environment."""
    # Tests start many processes; where Python may write no bytecode, each compiles what it imports.
    bin_dir = shared_environment(session, "run", "dev", imports=IMPORTED_BY_TESTS)
    sources = [ROOT / folder / "src" for folder in DISTRIBUTIONS]
    session.run(bin_dir / "python", "-m", "compileall", "-q", *sources)
    session.run(bin_dir / "python", "-m", "pytest", *arguments, env={**RUN_ENV, **env})
