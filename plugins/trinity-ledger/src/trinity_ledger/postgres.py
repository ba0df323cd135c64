"""The statements of PostgreSQL, through psycopg 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from trinity.errors import ConfigError, DataError

from trinity_ledger.address import Address
from trinity_ledger.database import Database
from trinity_ledger.packets import StoredPacket
from trinity_ledger.schema import add_digests, refuse_foreign, statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trinity_ledger.database import NewExperience, ResultRows

T = TypeVar("T")
CONNECT_S = 20
READ_S = 10  # a query of who only looks
_TYPES = {
    "ID": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "BYTES": "BYTEA",
    "FLOAT": "DOUBLE PRECISION",
    "INTEGER": "BIGINT",
}
_MAKING = 7_241_905  # the lock of who makes the tables
_ALONE = 7_241_906  # of who decides by what it reads
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_LACKS_DIGESTS = """
SELECT COUNT(*) > 0 AND COUNT(*) FILTER (WHERE column_name = 'digest') = 0
FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = 'packet'
"""
_WAITING = (
    "SELECT id, packet, place, uid FROM experience WHERE train_step IS NULL ORDER BY packet, place "
    "LIMIT %s FOR UPDATE SKIP LOCKED"
)
_INSERT = (
    "INSERT INTO experience (packet, place, uid, run, step, version, reward, num_tokens) "
    "SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], "
    "%s::bigint[], %s::float8[], %s::bigint[]) ON CONFLICT (uid) DO NOTHING"
)
_MARK = (
    "UPDATE experience SET train_step = %s, train_place = taken.place FROM "
    "unnest(%s::bigint[], %s::bigint[]) AS taken (id, place) WHERE experience.id = taken.id"
)


class PostgresDatabase(Database):
    """A database of a server, which any number of processes and machines may use.

    Args:
        url: ``postgresql://user:password@host:port/name?options``.
        name: it without the password.
        max_retries: how often a transaction is made again where the server was gone.
        retry_interval_s: how long to wait before.
        is_read_only: whether nothing is written, the tables included.

    Raises:
        ConfigError: psycopg is not installed.
    """

    shell = "psql"
    may_forget = True  # a server that dies loses what was not durable

    def __init__(
        self,
        url: str,
        *,
        name: str,
        max_retries: int = 3,
        retry_interval_s: float = 1.0,
        is_read_only: bool = False,
    ) -> None:
        super().__init__(max_retries=max_retries, retry_interval_s=retry_interval_s)
        try:
            import psycopg
        except ImportError as error:
            raise ConfigError(
                f"the ledger {name} needs psycopg, which is not installed. "
                f"Install it: pip install 'trinity-ledger[postgres]'."
            ) from error
        self._psycopg = psycopg
        self.errors = (psycopg.Error,)
        self._url, self._name, self._is_read_only = url, name, is_read_only

    def refuse_damaged(self) -> None:
        """Do nothing: that is the server's business (``data_checksums``, ``amcheck``)."""

    def _connected(self) -> Any:
        connection = self._psycopg.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_S, application_name="trinity"
        )
        if self._is_read_only:
            connection.execute("SET default_transaction_read_only = on")
            connection.execute(f"SET statement_timeout = '{READ_S}s'")
            return connection
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
                refuse_foreign(_PostgresRows(connection), query=_TABLES, name=self._name)
                connection.execute("SET LOCAL client_min_messages = warning")
                if connection.execute(_LACKS_DIGESTS).fetchone()[0]:
                    add_digests(_PostgresRows(connection), _TYPES)
                for statement in statements(_TYPES):
                    connection.execute(statement.replace("VIEW IF NOT EXISTS", "OR REPLACE VIEW"))
            connection.execute("SET synchronous_commit = off")
            connection.execute("SET lock_timeout = '60s'")
        except BaseException:
            connection.close()
            raise
        return connection

    def _transacted(self, work: Callable[[ResultRows], T], *, writes: bool, is_durable: bool) -> T:
        connection = self._connection
        with connection.transaction():
            if is_durable:
                connection.execute("SET LOCAL synchronous_commit = on")
            return work(_PostgresRows(connection))

    def _may_pass(self, error: Exception) -> bool:
        errors = self._psycopg
        return isinstance(error, (errors.OperationalError, errors.InterfaceError))

    def _failed(self, error: Exception) -> DataError:
        text = Address(None, self._url).hidden(" ".join(str(error).split()).rstrip("."))
        if self._is_read_only and isinstance(error, self._psycopg.errors.QueryCanceled):
            remedy = (
                f"A query took more than {READ_S} s, or somebody cancelled it. Try again when the "
                f"database has less load."
            )
        elif isinstance(error, self._psycopg.errors.DiskFull):
            remedy = "Free space on the server, then run the same command; no write is incomplete."
        elif isinstance(error, (self._psycopg.ProgrammingError, self._psycopg.DataError)):
            remedy = "It is not a ledger of this version. Use an empty database."
        else:
            remedy = "Start the server, then run the same command; written data is kept."
        return DataError(f"the ledger {self._name} cannot be used: {text}. {remedy}")


class _PostgresRows:
    def __init__(self, connection: Any) -> None:
        self._connection = connection  # Any: psycopg need not be installed

    def all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        cursor = self._connection.execute(statement.replace("?", "%s"), values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def do(self, statement: str, *values: object) -> int:
        """Return how many rows a change reached."""
        return int(self._connection.execute(statement.replace("?", "%s"), values).rowcount)

    def alone(self) -> None:
        """Let no other transaction that asks for this go on before this one ends."""
        self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ALONE,))

    def without_writers(self) -> None:
        """Let nobody write experiences before this transaction ends; wait for who does."""
        self._connection.execute("LOCK TABLE experience IN SHARE ROW EXCLUSIVE MODE")

    def insert_experiences(self, rows: Sequence[NewExperience]) -> int:
        """Return how many of these were not there already, and are now."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        return int(self._connection.execute(_INSERT, columns).rowcount)

    def waiting(self, count: int) -> list[tuple[int, int, int, str]]:
        """Return the oldest that wait, and keep others from them."""
        cursor = self._connection.execute(_WAITING, (count,))
        rows: list[tuple[int, int, int, str]] = cursor.fetchall()
        return rows

    def mark(self, ids: Sequence[int], *, step: int, first: int) -> None:
        """Note that a step trains these, in their order from the place ``first``."""
        places = list(range(first, first + len(ids)))
        self._connection.execute(_MARK, (step, list(ids), places))

    def packets(self, ids: Iterable[int]) -> dict[int, StoredPacket]:
        """Return the packets of these ids that are there."""
        query = "SELECT id, body, digest, outcome FROM packet WHERE id = ANY(%s)"
        cursor = self._connection.execute(query, (list(ids),), binary=True)
        return {
            one: StoredPacket(_bytes(body), _bytes(digest), outcome)
            for one, body, digest, outcome in cursor.fetchall()
        }


def _bytes(value: Any) -> bytes | None:  # Any: what the driver gives
    return None if value is None else bytes(value)
