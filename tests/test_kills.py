"""Commands that are ended at random moments, and a second user who may write where we do: a part of what `proving` runs whole."""

from __future__ import annotations

import os

import pytest

from proving import kills, two_users

SEED_MOMENTS = {"KILL": 0.55, "TERM": 0.7, "INT": 0.85, "power cut": 0.95}  # of the time that the command takes


def _undisturbed(name: str) -> tuple[kills.Command, int, object, float]:
    command = next(one for one in kills.COMMANDS if one.name == name)
    return (command, *kills.run_undisturbed(command))


@pytest.fixture(scope="module")
def repair() -> tuple[kills.Command, int, object, float]:
    return _undisturbed("repair")


@pytest.fixture(scope="module")
def verify() -> tuple[kills.Command, int, object, float]:
    return _undisturbed("verify")


@pytest.mark.parametrize("way", list(kills.WAYS))
def test_a_command_that_is_ended_leaves_nothing_and_ends_alike_when_it_is_run_again(
    way: str, repair: tuple[kills.Command, int, object, float]
) -> None:
    command, status, essence, seconds = repair
    trial = kills.run_trial(command, way, SEED_MOMENTS[way] * seconds, 0.4, (status, essence))
    assert trial.problems == []


def test_a_study_whose_last_file_was_cut_is_refused_as_damaged_or_whole(
    verify: tuple[kills.Command, int, object, float],
) -> None:
    command, status, essence, seconds = verify
    trial = kills.run_trial(command, "power cut", 60 + 10 * seconds, 0.5, (status, essence))
    assert trial.problems == []
    assert trial.left in {"whole", "damaged"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two users")
def test_a_second_user_reaches_nothing() -> None:
    assert two_users.problems_of("compare") == []
