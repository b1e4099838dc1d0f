"""Every error Rollcall raises on purpose.

    RollcallError
    ├── ConfigurationError        what the operator wrote cannot work
    │   ├── SettingError          one setting: the variable, what it got, what it takes
    │   ├── ContractError         a contract is refused, with every finding (fsm.findings)
    │   └── UnknownMachineError   neither a machine nor a file (rollcall.contracts)
    ├── MessageError              an envelope, a message type or a handler's output is not allowed
    │   └── ShapeError            a handler was given or returned what its role may not have
    ├── StaleWriteError           a row moved since it was read: the writer tries again
    ├── VersionConflictError      the caller expected another version than the row has
    ├── ContentionError           every attempt of a direct transition lost to another writer
    ├── GuardError                a guard cannot be loaded or answered (fsm.guard_terms)
    ├── RuleError                 a validation rule cannot be read (fsm.validation)
    ├── InvalidActionTransitionError   a status that cannot follow another (fsm.actions)
    ├── InfraUnavailableError     a server we depend on does not answer, or an open circuit says so
    ├── AccessRefusedError        a server answers and refuses our credentials
    ├── LogError                  a month cannot be taken off the log (tasks.retention)
    ├── SchemaError               the database and the code do not fit
    │   ├── SchemaBehindError     the database waits for `rollcall db upgrade`
    │   └── SchemaAheadError      the database was upgraded by newer code
    └── StackError                the embedded servers or their folder cannot be used
        ├── PortInUseError
        ├── ServerMissingError    a server's binary is nowhere to be found
        └── AlreadyRunningError   another supervisor holds the folder

An error that only one module raises lives there, and its module is named here. Each carries a
`remedy`: what a person does about it. The command line prints `message` and `remedy` on one line
and exits with `exit_code`.
"""

from typing import ClassVar


class RollcallError(Exception):
    """Something Rollcall refuses to do, and what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})"


class ConfigurationError(RollcallError):
    """What the operator wrote cannot work."""

    exit_code = 2


class SettingError(ConfigurationError):
    """One setting is wrong. The caller passes only what may be seen: never a secret's value."""

    def __init__(self, variable: str, got: str, takes: str) -> None:
        super().__init__(f"{variable} is {got}", f"it takes {takes}")
        self.variable = variable


class MessageError(RollcallError):
    """An envelope, a message type or a handler's output is not allowed."""

    exit_code = 2


class StaleWriteError(RollcallError):
    """A row moved since it was read: the writer tries again."""


class VersionConflictError(RollcallError):
    """The caller expected another version than the row has."""

    def __init__(self, message: str, remedy: str, expected: int, actual: int) -> None:
        super().__init__(message, remedy)
        self.expected = expected
        self.actual = actual


class ContentionError(RollcallError):
    """Every attempt of a direct transition lost to another writer."""


class ShapeError(MessageError):
    """A handler was given or returned what its role may not have."""


class InfraUnavailableError(RollcallError):
    """A server we depend on does not answer, or an open circuit says so."""

    exit_code = 3


class AccessRefusedError(RollcallError):
    """A server answers and refuses our credentials."""

    exit_code = 3


class SchemaError(RollcallError):
    """The database and the code do not fit."""

    exit_code = 4


class SchemaBehindError(SchemaError):
    """The database waits for `rollcall db upgrade`."""


class SchemaAheadError(SchemaError):
    """The database was upgraded by newer code than this."""


class StackError(RollcallError):
    """The embedded servers or their folder cannot be used."""

    exit_code = 5


class PortInUseError(StackError):
    """Somebody else listens where a server was told to listen."""


class ServerMissingError(StackError):
    """A server's binary is nowhere to be found."""


class AlreadyRunningError(StackError):
    """Another supervisor holds the folder."""
