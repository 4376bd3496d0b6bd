"""The command `saps monitor`: the Spark job that decides which topics get OpenFlow trees.

Exit status: 0 after an orderly end; 1 if OFGate lacks decisions, batches fail repeatedly, or Spark does not start;
2 for an unusable option or a missing library.
"""

from __future__ import annotations

import logging

import typer

from monitoring.files import shown
from monitoring.settings import PROGRAM, MonitorSettings
from saps.cli.apps import command_app, refuse, settings_command
from saps.config.sources_io import token
from saps.runtime.logs import configure_logging

app = command_app("monitor", completion=True)


@settings_command(app, PROGRAM)
def monitor(settings: MonitorSettings) -> int:
    """Decide which topics get OpenFlow trees, from the brokers' counts, and tell OFGate.

    Brokers count with `--set monitoring.directory=DIR`; OFGate listens with `--decisions HOST:PORT`.

        saps monitor --source /var/lib/saps/counts --ofgate http://127.0.0.1:8282 --once

    The state directory makes it exact: killed at any point and started again, the job neither loses nor repeats a
    decision. Needs the extra `saps[spark]` and Java 17.
    """
    configure_logging(settings.log_level)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    rules = settings.rules()
    secret = token("token_file", settings.token_file) or None
    asking = token("budgets_token_file", settings.budgets_token_file) or None
    password = token("source_password_file", settings.source_password_file)
    try:  # here, so that --help does not pay for Spark
        from monitoring.counts.sources import Access
        from monitoring.decisions.sink import Identity
        from monitoring.job.run import Order, run
        from monitoring.job.spark import NoSparkError, session
        from monitoring.selection.budgets import Budgets
    except ImportError as error:
        raise refuse(f"{error}: install saps[spark]") from None
    identity = None
    if settings.certificate is not None and settings.authority is not None:
        identity = Identity(settings.certificate, settings.authority)
    order = Order(
        settings.source,
        settings.place(),
        list(settings.ofgate),
        secret,
        None if settings.once else settings.interval,
        rules=rules,
        budgets=Budgets(settings.budgets, rules.network, asking) if settings.budgets else None,
        identity=identity,
        metrics=settings.metrics,
        access=Access(settings.kafka_options, "", password, settings.certificate, settings.authority),
        tables=settings.tables,
    )
    try:
        spark = session(
            settings.master or None, settings.memory or None, settings.partitions, event_log=settings.events()
        )
    except ImportError as error:
        raise refuse(f"{error}: install saps[connect]") from None
    except (NoSparkError, OSError) as error:
        raise refuse(str(error), status=1) from None
    try:
        typer.echo(f"ready source={shown(settings.source)} state={shown(settings.place())}")
        return run(spark, order)
    except ImportError as error:
        raise refuse(f"{error}: install saps[sources], saps[hdfs] or saps[tables]") from None
    except (OSError, ValueError) as error:
        raise refuse(str(error)) from None
    finally:
        spark.stop()
