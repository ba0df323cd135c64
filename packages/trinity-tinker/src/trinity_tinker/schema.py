"""The tables of `tinker.db`, and what older files lack of them."""

from __future__ import annotations

__all__ = ["FORMAT", "SCHEMA", "UPGRADES"]

FORMAT = 5
# Covers what is shown of all requests: their rows hold bodies, which nobody wants to read past.
_LISTED = """
CREATE INDEX listed ON requests (made, scope, seq, kind, finished, form, retrieved, summary);
"""
_BASES = """
CREATE TABLE bases (name TEXT PRIMARY KEY, digest TEXT NOT NULL);
CREATE INDEX unfetched ON requests (finished) WHERE result IS NOT NULL AND retrieved IS NULL;
"""
# Counts of requests, kept as they come and end: the viewer counts 100,000 of them at each page.
# The scope '' has those of all.
_COUNTS = """
CREATE TABLE counts (
    scope TEXT NOT NULL, kind TEXT NOT NULL, requests INTEGER NOT NULL, waiting INTEGER NOT NULL,
    failed INTEGER NOT NULL, seconds REAL NOT NULL, longest REAL NOT NULL, last REAL NOT NULL,
    PRIMARY KEY (scope, kind)
) WITHOUT ROWID;
CREATE TRIGGER counts_new AFTER INSERT ON requests BEGIN
    INSERT INTO counts VALUES (NEW.scope, NEW.kind, 1, 1, 0, 0, 0, NEW.made),
        ('', NEW.kind, 1, 1, 0, 0, 0, NEW.made)
    ON CONFLICT DO UPDATE SET requests = requests + 1, waiting = waiting + 1, last = excluded.last;
END;
CREATE TRIGGER counts_finished AFTER UPDATE OF finished ON requests
WHEN OLD.finished IS NULL AND NEW.finished IS NOT NULL BEGIN
    UPDATE counts SET waiting = waiting - 1, failed = failed + (NEW.form = 'error'),
        seconds = seconds + NEW.finished - NEW.made,
        longest = MAX(longest, NEW.finished - NEW.made)
    WHERE scope IN (NEW.scope, '') AND kind = NEW.kind;
END;
CREATE INDEX failed ON requests (made) WHERE form = 'error';
CREATE INDEX of_scope ON requests (scope, made);
"""
_COUNTED = "".join(
    f"""
INSERT INTO counts SELECT {scope} AS place, kind, COUNT(*), SUM(finished IS NULL),
    TOTAL(form = 'error'), TOTAL(finished - made), IFNULL(MAX(finished - made), 0), MAX(made)
FROM requests GROUP BY place, kind;
"""
    for scope in ("scope", "''")
)
_SUMMARY = "ALTER TABLE requests ADD COLUMN summary TEXT;"
# Kills of the server that a request outlived without a result.
_KILLS = "ALTER TABLE requests ADD COLUMN kills INTEGER NOT NULL DEFAULT 0;"
# Earlier versions noted means such as Infinity, which SQLite does not take for JSON.
_READABLE = """
UPDATE requests SET summary = REPLACE(
    REPLACE(REPLACE(summary, '-Infinity', 'null'), 'Infinity', 'null'), 'NaN', 'null'
) WHERE rowid IN (
    SELECT rowid FROM requests INDEXED BY listed
    WHERE summary IS NOT NULL AND NOT json_valid(summary)
);
"""
UPGRADES = {  # of files of this format, too: some were written before the means were finite
    1: _SUMMARY + _LISTED + _BASES + _COUNTS + _COUNTED + _KILLS + _READABLE,
    2: _BASES + _COUNTS + _COUNTED + _KILLS + _READABLE,
    3: _COUNTS + _COUNTED + _KILLS + _READABLE,
    4: _KILLS + _READABLE,
    FORMAT: _READABLE,
}
SCHEMA = (
    """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, call TEXT, body TEXT NOT NULL, made REAL NOT NULL,
    seen REAL NOT NULL, finished TEXT, UNIQUE (owner, call)
);
CREATE TABLE models (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, session TEXT NOT NULL, made REAL NOT NULL,
    used REAL NOT NULL, base TEXT NOT NULL DEFAULT '', adapter TEXT NOT NULL DEFAULT '{}',
    metadata TEXT NOT NULL DEFAULT 'null', state_seq INTEGER NOT NULL DEFAULT -1,
    state_folder TEXT NOT NULL DEFAULT ''
);
CREATE TABLE requests (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, scope TEXT NOT NULL, seq INTEGER NOT NULL,
    kind TEXT NOT NULL, body BLOB, digest BLOB NOT NULL, made REAL NOT NULL, finished REAL,
    form TEXT, result BLOB, retrieved REAL, summary TEXT, UNIQUE (scope, seq)
);
CREATE INDEX unfinished ON requests (made) WHERE finished IS NULL;
CREATE INDEX retrieved ON requests (retrieved) WHERE result IS NOT NULL;
CREATE TABLE samplings (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, session TEXT NOT NULL, seq INTEGER NOT NULL,
    base TEXT NOT NULL, path TEXT, made REAL NOT NULL, clones INTEGER NOT NULL DEFAULT 0,
    UNIQUE (session, seq)
);
CREATE TABLE checkpoints (
    path TEXT PRIMARY KEY, owner TEXT NOT NULL, model TEXT NOT NULL, kind TEXT NOT NULL,
    made REAL NOT NULL, expires REAL, size INTEGER NOT NULL, folder TEXT NOT NULL,
    base TEXT NOT NULL, adapter TEXT NOT NULL, metadata TEXT NOT NULL
);
"""
    + _LISTED
    + _BASES
    + _COUNTS
    + _KILLS
)
