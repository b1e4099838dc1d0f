"""How many messages a transaction takes, after a death and after a refusal."""

from tasks.pace import Pace


def test_without_trouble_it_is_a_whole_batch() -> None:
    pace = Pace(500, died=False)
    assert (pace.most, pace.careful) == (500, False)
    pace.went_well()
    assert pace.most == 500


def test_after_a_death_it_is_one_at_a_time_for_as_long_as_a_batch_may_be() -> None:
    pace = Pace(4, died=True)
    seen = []
    while pace.careful:
        seen.append(pace.most)
        pace.went_well()
    assert seen == [1, 1, 1, 1]
    pace.went_well()
    assert pace.most > 1


def test_when_nothing_waits_that_could_kill_the_danger_is_over() -> None:
    pace = Pace(500, died=True)
    pace.danger_over()
    assert (pace.most, pace.careful) == (500, False)


def test_a_refused_batch_is_halved_down_to_the_one_that_is_refused_by_itself() -> None:
    pace = Pace(8, died=False)
    halves = []
    while not pace.refused():
        halves.append(pace.most)
    assert halves == [4, 2, 1, 1]  # a single one gets a second chance: another may have won a race


def test_after_the_bad_one_the_pace_doubles_up_to_the_batch_again() -> None:
    pace = Pace(8, died=False)
    for _ in range(3):
        pace.refused()
    seen = []
    for _ in range(4):
        pace.went_well()
        seen.append(pace.most)
    assert seen == [2, 4, 8, 8]
    assert not pace.refused()
