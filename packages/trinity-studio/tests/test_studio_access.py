"""Who may use the studio: by the token, by a name of this machine, from its own page."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect
from trinity.extend import get_manager, set_manager
from trinity_studio.guard import Guard
from trinity_studio.studio.document import Document
from trinity_studio.studio.secrets import without_secrets
from typer.testing import CliRunner

TOKEN = "a-token"
HOST = "127.0.0.1:8501"
HERE = f"http://{HOST}"


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("open")
    await socket.close()


@pytest.fixture
def client() -> TestClient:
    page = Route("/{token}/", lambda request: PlainTextResponse("the page"))
    app = Starlette(routes=[page, WebSocketRoute("/{token}/stream", echo)])
    return TestClient(Guard(app, token=TOKEN), base_url=HERE)


@pytest.mark.parametrize("path", ["/", "/wrong/", f"/{TOKEN}x/", f"/x/{TOKEN}/", f"//{TOKEN}/"])
def test_without_the_token_nothing_is_shown(path, client) -> None:
    answer = client.get(path)

    assert answer.status_code == 403
    assert "the page" not in answer.text


def test_with_it_the_page_is_shown_and_may_load_nothing_from_elsewhere(client) -> None:
    answer = client.get(f"/{TOKEN}/")

    assert answer.text == "the page"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "http" not in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"  # the token is in the address


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "0.0.0.0:8501"])
def test_another_name_for_this_machine_is_refused(host, client) -> None:
    assert client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:9", "file://"]
)
def test_a_page_of_another_site_is_refused_even_with_the_token(origin, client) -> None:
    assert client.get(f"/{TOKEN}/", headers={"origin": origin}).status_code == 403


def test_a_websocket_of_the_own_page_is_opened(client) -> None:
    headers = {"host": HOST, "origin": HERE}
    with client.websocket_connect(f"/{TOKEN}/stream", headers=headers) as socket:
        assert socket.receive_text() == "open"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/wrong/stream", {"host": HOST, "origin": HERE}),
        (f"/{TOKEN}/stream", {"host": HOST, "origin": "https://evil.example"}),
        (f"/{TOKEN}/stream", {"host": "evil.example"}),
    ],
)
def test_any_other_websocket_is_closed(path, headers, client) -> None:
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect(path, headers=headers) as socket,
    ):
        socket.receive_text()


def test_keys_and_passwords_are_not_shown() -> None:
    values = {
        "project": "open",
        "explorer": {"env_vars": {"MY_API_KEY": "hush-hush-1\n  of two lines hush"}},
        "monitor": {"monitor_args": {"uri": "https://me:hush-hush-2@host", "token": 77}},
        "name": "${oc.env:UNFINISHED",
    }

    shown = without_secrets(values)

    assert "hush" not in str(shown)
    assert shown["monitor"]["monitor_args"]["token"] == "****"
    assert (shown["project"], shown["name"]) == ("open", "${oc.env:UNFINISHED")


def test_a_field_that_holds_keys_is_opened_on_demand(draw_studio) -> None:
    variables = {"env_vars": {"MY_API_KEY": "hush-hush-1"}}
    page = draw_studio(Document({"explorer": variables}, is_fresh=False))
    page.session_state["_mode"], page.session_state["_part"] = (
        "Expert Mode",
        "Explorer and Synchronizer",
    )
    page.run()
    key = "explorer.env_vars"

    assert f"w:{key}" not in [one.key for one in page.text_area]
    page.toggle(key=f"show:{key}").set_value(True).run()
    assert "hush-hush-1" in page.text_area(key=f"w:{key}").value


def test_a_key_is_typed_into_a_field_that_hides_it(draw_studio) -> None:
    page = draw_studio()
    page.session_state["_mode"], page.session_state["_part"] = (
        "Expert Mode",
        "Explorer and Synchronizer",
    )
    page.session_state["open:explorer.rollout_model"] = True
    page.run()

    field = page.text_input(key="w:explorer.rollout_model.api_key")

    assert field.proto.type == field.proto.PASSWORD


def test_without_the_distribution_the_command_says_the_line_that_installs_it() -> None:
    from trinity.cli.main import app

    before = set_manager(get_manager().narrowed(disabled=["studio"]))
    try:
        said = str(CliRunner().invoke(app, ["studio"]).exception)
    finally:
        set_manager(before)

    assert said.startswith(
        "trinity studio is part of trinity-studio. Run: python -m pip install trinity-studio"
    )
