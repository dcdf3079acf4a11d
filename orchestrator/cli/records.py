"""``chunksmith records``: look after the files of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.arguments import AsJson, RunArgument, RunFolderArgument, address_of, complete_from, run_argument
from orchestrator.errors import ChunksmithError, UserError

if TYPE_CHECKING:
    from orchestrator.records.checking import Fault

records = typer.Typer(
    help="Check, compact, merge, export, mirror or fetch the tables of a run.\n\n"
    "Example: chunksmith records check runs/cpu-demo",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@records.callback()
def _records(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@records.command()
def check(
    run: RunArgument,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move damaged files to the run's folder damaged, so that the rest is read.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Compare every file of a run with its checksum, also while a sweep writes; name what is damaged or missing.

    Example: chunksmith records check runs/cpu-demo --repair
    """
    from orchestrator.cli.tables import show_json, show_table
    from orchestrator.records import RunFolder
    from orchestrator.records.checking import check as check_run

    folder, address = RunFolder.open(run), address_of(run)
    if repair and address is not None:
        raise UserError(f"{address}: is an address; --repair needs the run folder itself.")
    if repair:
        with folder.lock():
            found = check_run(folder, repair=True)
    else:
        found = check_run(folder)
    faults = [fault for table in found for fault in table.faults]
    if json_:
        show_json([{**vars(table), "faults": [_plain(fault, run) for fault in table.faults]} for table in found])
    else:
        heads = ["table", "files", "rows", "MiB", "without checksum", "faults"]
        rows = [
            [
                one.table,
                str(one.files),
                f"{one.rows:,}",
                f"{one.size / 2**20:,.1f}",
                str(one.unlisted),
                str(len(one.faults)),
            ]
            for one in found
        ]
        show_table(heads, rows, numbers=heads[1:])
        for fault in faults:
            held = f" (parts: {fault.parts})" if fault.parts else ""
            mended = f"; {fault.mended}" if fault.mended else ""
            typer.echo(f"{_shown(fault.file, run)} {fault.what}{held}{mended}")
    left = [fault for fault in faults if fault.mended is None]
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        advice = (
            "--repair sets damaged files aside" if address is None else "records mirror RUN --verify sends it again"
        )
        raise ChunksmithError(f"{_shown(left[0].file, run)} {left[0].what}{more}; {advice}")


@records.command()
def compact(
    run: RunFolderArgument,
    json_: AsJson = False,
) -> None:
    """Rewrite the tables of a run that has ended as few large files. A sweep gathers small ones itself as it goes.

    Example: chunksmith records compact runs/cpu-demo
    """
    from orchestrator.cli.tables import show_json, show_table
    from orchestrator.records import RunFolder
    from orchestrator.records.compaction import compact as compact_run

    folder = RunFolder.open(run)
    with folder.lock():
        found = compact_run(folder)
    if json_:
        show_json(found)
        return
    heads = ["table", "rows", "files before", "after", "MiB before", "MiB after"]
    rows = [
        [one.table, f"{one.rows:,}", *map(str, one.files), *(f"{size / 2**20:,.2f}" for size in one.size)]
        for one in found
    ]
    show_table(heads, rows, numbers=heads[1:])


@records.command()
def merge(
    runs: Annotated[list[Path], run_argument("Folders of the runs, or their addresses.")],
    into: Annotated[Path, typer.Option(help="Folder of the new run.", show_default=False)],
    json_: AsJson = False,
) -> None:
    """Write the rows of runs that differ in nothing but their points and seeds into one new run, to analyse together.

    Example: chunksmith records merge runs/monday runs/tuesday --into runs/both
    """
    from orchestrator.cli.tables import show_json
    from orchestrator.records import RunFolder
    from orchestrator.records.merging import merge as merge_runs

    rows = merge_runs([RunFolder.open(run) for run in runs], into)
    if json_:
        show_json({"run": str(into), "rows": dict(rows)})
        return
    typer.echo(f"{into}: " + ", ".join(f"{count:,} {table}" for table, count in rows.items()))


@records.command()
def export(
    run: RunArgument,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the files, or its address: s3://bucket/folder, or what else pyarrow or fsspec knows.",
            show_default=False,
        ),
    ],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="csv, or parquet: one file per table, for DuckDB and others.",
            autocompletion=complete_from(lambda: ("csv", "parquet")),
        ),
    ] = "csv",
    table: Annotated[
        list[str] | None, typer.Option(help="Table to write; repeat it for several. All if left out.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Write the tables of a run as single files, in the present schema; also while a sweep writes.

    Example: chunksmith records export runs/cpu-demo --format parquet -o cpu-demo
    """
    from orchestrator.cli.tables import show_json
    from orchestrator.records import SCHEMAS, RunFolder
    from orchestrator.records.exporting import export as export_run

    paths = export_run(RunFolder.open(run), output, form=format_, tables=table or tuple(SCHEMAS))
    if json_:
        show_json(paths)
        return
    for path in paths:
        typer.echo(path)


@records.command()
def mirror(
    run: RunFolderArgument,
    to: Annotated[
        str | None,
        typer.Option(
            help="Address of a folder in an object storage, in which the run gets its own; where the run was mirrored "
            "before if left out.",
            show_default=False,
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read back what is there, and send again what is not what it should be.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Send what an object storage lacks of a run's records. A sweep with a mirror does so itself as it goes.

    Example: chunksmith records mirror runs/cpu-demo --to s3://results/runs
    """
    from orchestrator.cli.tables import show_json
    from orchestrator.records import RunFolder
    from orchestrator.records.remote import Claim, checked, open_mirror

    folder = RunFolder.open(run)
    target = Claim.read(folder).target if to is None else checked(to, where="--to")
    if not target:
        raise UserError(f"{run}: has no mirror yet; say where by --to, for instance --to s3://results/runs")
    with folder.lock():
        kept = open_mirror(folder, target)
        sent = kept.send(verify=verify)
    if json_:
        show_json({"address": kept.address, "sent": sent, "damaged": kept.damaged})
    else:
        typer.echo(f"{kept.address}: {sent or 'nothing'} sent")
    if kept.damaged:
        raise ChunksmithError(
            f"{folder.path / kept.damaged[0]}: is damaged, and was not sent; see: chunksmith records check {run}"
        )


@records.command()
def fetch(
    address: Annotated[str, typer.Argument(help="Address of the run, s3://bucket/runs/<study>.", show_default=False)],
    into: Annotated[Path, typer.Option(help="Folder of the copy.", show_default=False)],
    json_: AsJson = False,
) -> None:
    """Copy a run's records from an object storage into a folder, to read them there; also while a sweep writes.

    Example: chunksmith records fetch s3://results/runs/cpu-demo --into cpu-demo
    """
    from orchestrator.cli.tables import show_json
    from orchestrator.records.remote import fetch as fetch_run

    found = fetch_run(address, into)
    if json_:
        show_json({"run": str(found.path)})
    else:
        typer.echo(str(found.path))


def _plain(fault: Fault, run: Path) -> dict[str, object]:
    return {**vars(fault), "file": _shown(fault.file, run)}


def _shown(file: Path, run: Path) -> str:
    """Where a file lies as the user sees it, who may have given an address."""
    address = address_of(run)
    return str(file) if address is None else f"{address}/{file.relative_to(run)}"
