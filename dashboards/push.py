"""Puts folder, data source and dashboards into Grafana: `python -m dashboards.push --url …`."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from dashboards.grafana import Grafana, NoGrafana, PushError
from dashboards.grafana_json import grafana_json
from dashboards.registry import DASHBOARDS

# The token is one of the values that older versions of typer show in tracebacks.
app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)


@app.command()
def push(
    url: Annotated[str, typer.Option(help="Grafana, as http://host:port with any path.")],
    token: Annotated[
        str, typer.Option(envvar="GRAFANA_TOKEN", help="Of a service account with the role Admin.")
    ],
    prometheus: Annotated[
        str, typer.Option(help="Prometheus, as Grafana reaches it.")
    ] = "http://127.0.0.1:9090",
) -> None:
    """Create or update everything, say what was done, and end with 1 if anything failed."""
    failed = False
    try:
        grafana = Grafana.at(url, token)
        steps: dict[str, Callable[[], str]] = {
            "folder": grafana.put_folder,
            "data source": partial(grafana.put_data_source, prometheus),
        }
        for one in DASHBOARDS.values():
            steps[one.title] = partial(grafana.put_dashboard, grafana_json(one))
        for name, step in steps.items():
            try:
                typer.echo(f"{name}: {step()}")
            except NoGrafana:
                raise
            except PushError as error:
                typer.echo(f"failed: {error}", err=True)
                failed = True
    except NoGrafana as error:
        typer.echo(f"failed: {error}", err=True)
        failed = True
    raise typer.Exit(failed)


if __name__ == "__main__":
    app()
