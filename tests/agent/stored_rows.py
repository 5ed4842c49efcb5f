"""Every row of a store, without what no two agents write alike."""

from sqlalchemy import text

from agent.store.schema import metadata
from agent.store.store import Store


def all_rows(where: str) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of every table in the order of its key."""
    found = {}
    with Store.open(where) as store, store._engine.connect() as connection:
        for name, table in metadata.tables.items():
            keys = ", ".join(column.name for column in table.primary_key.columns)
            rows = connection.execute(text(f"SELECT * FROM {name} ORDER BY {keys}"))
            found[name] = [
                tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in rows
            ]
    # When it was committed is the agent's wall clock; a commit's stamp is drawn.
    for name, column in (("runs", "last_commit_at_ns"), ("positions", "stamp")):
        place = [column.name for column in metadata.tables[name].columns].index(column)
        found[name] = [(*row[:place], *row[place + 1 :]) for row in found[name]]
    return found
