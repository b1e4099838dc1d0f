"""The pages about machines: every example runs, every table says what the code does."""

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fsm.catalogue import KNOWN_INTENTS, NAMED_ACTIONS
from fsm.contract import Contract
from fsm.contract_yaml import ContractError, FindingCode, load_contract
from fsm.diagram_scene import duration
from fsm.fields import Fields
from fsm.guard import GuardCode, GuardError, Operator, parse_guard
from fsm.library import Machine, load_machine
from fsm.results import Result
from rollcall.cli import app
from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"
GUARDS = DOCS / "reference" / "guards.md"
CONTRACTS = DOCS / "reference" / "contracts.md"
MACHINES = DOCS / "reference" / "machines.md"
HOW_TO = DOCS / "how-to" / "write-a-machine.md"
CONCEPTS = DOCS / "concepts" / "machines.md"
PAGES = (GUARDS, CONTRACTS, MACHINES, HOW_TO, CONCEPTS)


def blocks(language: str, *pages: Path) -> list[str]:
    fenced = re.compile(rf"^```{language}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [block for page in pages for block in fenced.findall(page.read_text())]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row of a text, headings and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def section(page: Path, heading: str) -> str:
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", page.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found is not None, f"{page.name} has no section {heading!r}"
    return found.group(1)


@pytest.mark.parametrize("text", blocks("yaml", *PAGES))
def test_a_contract_on_a_page_loads_or_is_refused_as_it_says(text: str) -> None:
    first, _, rest = text.partition("\n")
    if refused := re.fullmatch(r"# refused: ([A-Z_]+)", first):
        with pytest.raises(ContractError) as caught:
            load_contract(text)
        assert refused.group(1) in {each.code for each in caught.value.findings}
        return
    assert load_contract(text).name
    if shown := re.fullmatch(r"# file: (\S+)", first):
        assert rest == (REPOSITORY / shown.group(1)).read_text()


def test_there_are_contracts_of_both_kinds() -> None:
    refused = [text for text in blocks("yaml", *PAGES) if text.startswith("# refused: ")]
    assert 2 <= len(refused) < len(blocks("yaml", *PAGES))


def guard_examples() -> Iterator[tuple[str, str]]:
    for block in blocks("guard", GUARDS):
        for line in block.splitlines():
            text, _, said = line.rpartition("# ")
            yield text, said


@pytest.mark.parametrize(("text", "said"), list(guard_examples()))
def test_a_guard_on_the_page_answers_as_it_says(text: str, said: str) -> None:
    asked = re.fullmatch(r"(\{.*\}) (strictly )?is (\w+)", said)
    if asked is None:
        with pytest.raises(GuardError) as refused:
            parse_guard(text)
        assert refused.value.code == said
        return
    guard = parse_guard(text)
    context, strict, answer = json.loads(asked[1]), bool(asked[2]), asked[3]
    if answer in ("true", "false"):
        assert guard.evaluate(context, strict) is (answer == "true")
        return
    with pytest.raises(GuardError) as raised:
        guard.evaluate(context, strict)
    assert raised.value.code == answer


def test_every_guard_code_and_operator_is_documented_with_an_example() -> None:
    told = [row[0].strip("`") for row in rows(section(GUARDS, "Codes"))]
    assert told == list(GuardCode)
    operators = {
        name for row in rows(section(GUARDS, "Operator")) for name in re.findall("`(.+?)`", row[0])
    }
    assert operators == set(Operator)
    shown = {said.rpartition(" ")[2] for _, said in guard_examples()}
    assert set(GuardCode) - shown == {GuardCode.GUARD_EVALUATION_ERROR}


@pytest.mark.parametrize("row", rows(section(GUARDS, "Codes")), ids=lambda row: str(row[0]))
def test_the_example_beside_a_load_code_is_refused_with_it(row: list[str]) -> None:
    if row[1] != "load":
        return
    with pytest.raises(GuardError) as refused:
        parse_guard(row[3].strip("`"))
    assert refused.value.code == row[0].strip("`")


def test_every_finding_code_is_documented_in_order() -> None:
    told = [row[0].strip("`") for row in rows(section(CONTRACTS, "Findings"))]
    assert told == list(FindingCode)


def test_every_result_is_documented_in_order() -> None:
    told = [row[0].strip("`") for row in rows(section(CONCEPTS, "Results"))]
    assert told == list(Result)


SECTIONS = {
    "a contract": "Top level",
    "a state": "States",
    "a transition": "Transitions",
    "a condition": "Conditions",
    "an action": "Actions",
    "a retry rule": "auto_retry",
    "'retry_counter'": "retry_counter",
}
CONFIGURED = ("intent_type", "log_event", "log_metric")
CONFIGS = {
    "log_event": {"message", "level", "fields"},
    "log_metric": {"metric", "value", "on"},
    "an intent": {"payload", "optional_payload", "when"},
}


def test_every_field_is_documented_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page lists is what the reader asks for, found by listening to it."""
    asked: defaultdict[str, set[str]] = defaultdict(set)
    finish = Fields.finish

    def listening(fields: Fields) -> None:
        asked[fields.what] |= fields._asked
        finish(fields)

    monkeypatch.setattr(Fields, "finish", listening)
    for path in (*(REPOSITORY / "fsm" / "machines").glob("*.yaml"), DOCS / "examples/backup.yaml"):
        load_contract(path)
    assert SECTIONS.keys() <= asked.keys()
    for what, heading in SECTIONS.items():
        told = [re.findall("`(.+?)`", row[0])[0] for row in rows(section(CONTRACTS, heading))]
        fields = [name for name in told if name not in CONFIGURED]
        assert set(fields) == asked[what], heading
        assert len(fields) == len(set(fields))
    assert asked["'version'"] == {"major", "minor", "patch"}
    configured = asked["'action_config'"]
    assert configured == {"intent_type", *CONFIGS["log_event"], *CONFIGS["log_metric"]}
    actions = section(CONTRACTS, "Actions")
    for kind, fields_of_kind in CONFIGS.items():
        (row,) = (line for line in actions.splitlines() if re.match(rf"\| `?{kind}`? \|", line))
        assert fields_of_kind <= set(re.findall("`(.+?)`", row))


def test_inert_fields_change_nothing_but_are_checked() -> None:
    text = (DOCS / "examples" / "backup.yaml").read_text()
    plain = load_contract(text)
    for name, kind, _, meaning in rows(section(CONTRACTS, "Top level")):
        if not meaning.startswith("*inert*"):
            continue
        key, value = name.strip("`"), "false" if kind == "boolean" else "7"
        assert load_contract(f"{text}{key}: {value}\n") == plain
        with pytest.raises(ContractError):
            load_contract(f"{text}{key}: wrong\n")


def test_every_named_action_and_intent_is_documented() -> None:
    written = set(re.findall(r"`([\w.]+)`", section(CONTRACTS, "Actions")))
    assert set(NAMED_ACTIONS) <= written
    assert written >= KNOWN_INTENTS


def console_commands() -> Iterator[tuple[str, bool, list[str]]]:
    """Each command with whether it exits 1, and the lines it is said to print."""
    for block in blocks("console", *PAGES):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *printed = part.splitlines()
            fails = "# exits 1" in printed
            yield command, fails, [line for line in printed if not line.startswith("#")]


@pytest.mark.parametrize(("command", "fails", "printed"), list(console_commands()))
def test_a_command_on_a_page_does_what_it_shows(
    command: str, fails: bool, printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    program, *arguments = shlex.split(command)
    assert program == "rollcall"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == (1 if fails else 0), result.output
    said = {line.rstrip() for line in result.output.splitlines()}
    for line in printed:
        assert line.rstrip() in said


@pytest.mark.parametrize("program", blocks("python", *PAGES))
def test_a_program_on_a_page_runs(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    exec(compile(program, "page", "exec"), {})  # noqa: S102


def machine_section(contract: Contract) -> str:
    """The part of docs/reference/machines.md that the contract itself can tell."""
    begins = f"begins in `{contract.initial_state}`, {contract.concurrency}"
    lines = [f"## {contract.name}", "", contract.description, ""]
    lines += [f"Version {contract.version}, {begins}.", ""]
    lines += [_row("state", "type", "ends", "timeout", "description"), "|---" * 5 + "|"]
    for state in contract.states:
        limit = state.timeout
        after = f"{duration(limit.after_ms)}: `{limit.trigger}`" if limit else ""
        ends = "yes" if state.is_terminal else ""
        lines.append(_row(f"`{state.name}`", state.type, ends, after, state.description))
    lines += ["", _row("transition", "from", "trigger", "to", "priority", "guards")]
    lines.append("|---" * 6 + "|")
    for each in contract.transitions:
        names = (each.name, each.from_state, each.trigger, each.to_state)
        guards = _listed(tuple(str(guard) for guard in each.guards))
        lines.append(_row(*(f"`{name}`" for name in names), str(each.priority), guards))
    lines += ["", _row("trigger", "sources"), "|---|---|"]
    lines += [_row(f"`{each}`", ", ".join(contract.sources(each))) for each in contract.triggers]
    return "\n".join([*lines, *_remarks(contract)]) + "\n"


def _remarks(contract: Contract) -> Iterator[str]:
    if counter := contract.retry_counter:
        counted = f"`{counter.field}` counts {_listed(counter.increment_on)}"
        reset = f"{_listed(counter.reset_on)} set it to 0"
        yield f"\n{counted} up to {counter.max_value}; {reset}."
    for each in contract.auto_retry:
        backoff = f"up to {duration(each.base_ms)}, later {duration(each.max_ms)}"
        leaves = f"The runtime leaves `{each.state}` by `{each.trigger}` after a backoff of"
        yield f"\n{leaves} {backoff}, and by `{each.exhausted}` at the end."
    if contract.idempotent_triggers:
        yield f"\nIdempotent: {_listed(contract.idempotent_triggers)}."
    if contract.ttl_ms is not None:
        yield f"\nRemembered for {duration(contract.ttl_ms)}."


def _row(*cells: str) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


@pytest.mark.parametrize("machine", Machine)
def test_the_page_of_the_machines_says_what_the_contracts_say(machine: Machine) -> None:
    expected = machine_section(load_machine(machine))
    assert expected in MACHINES.read_text(), f"docs/reference/machines.md needs:\n{expected}"
