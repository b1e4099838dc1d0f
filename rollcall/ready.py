"""Settings whose database answers and fits: what every command that works on it starts with."""

from rollcall.supervisor import running_settings
from tasks.database import open_engine
from tasks.logs import configure_logging
from tasks.reachability import postgres_version
from tasks.schema import require_current
from tasks.settings import Settings


def ready_settings() -> Settings:
    """Refuse at once, in one line, what could only fail later."""
    settings = running_settings(Settings.from_environment())
    configure_logging(settings)
    if settings.database_url is not None:
        postgres_version(settings.database_url)
    require_current(open_engine(settings, "command", pooled=False))
    return settings
