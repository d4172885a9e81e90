"""Tasks are told apart by block hashes alone: agents with a common system prompt, forks, edits, bounded memory."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from eactl.policy import Lineage

BLOCK = 4
SYSTEM = list(range(1000, 1000 + 5 * BLOCK + 2))  # ends inside a block


def chain(tokens: list[int]) -> list[tuple[int, ...]]:
    """Ids of the full blocks, each naming its whole prefix (an oracle without hashing)."""
    return [tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)]


class Agent:
    """A conversation that remembers which task each of its requests was given."""

    def __init__(self, lineage: Lineage, first_prompt: list[int]) -> None:
        self.lineage, self.prompt, self.tasks = lineage, first_prompt, []

    def ask(self) -> Agent:
        self.tasks.append(self.lineage.begin(chain(self.prompt), self.prompt))
        return self

    def answered(self, output: list[int], then: list[int]) -> Agent:
        self.lineage.end(self.tasks[-1], chain(self.prompt + output), self.prompt)
        self.prompt = self.prompt + output + then
        return self

    def turn(self, output: list[int], then: list[int]) -> Agent:
        return self.ask().answered(output, then)


def fresh(count: int, _next: list[int] = [10_000]) -> list[int]:  # noqa: B006 - a counter
    _next[0] += count
    return list(range(_next[0] - count, _next[0]))


def tasks(*agents: Agent) -> int:
    return len({task for agent in agents for task in agent.tasks})


def test_interleaved_agents_that_share_a_system_prompt_are_counted_exactly_at_every_moment() -> None:
    lineage = Lineage(BLOCK)
    agents = [Agent(lineage, SYSTEM + fresh(20)) for _ in range(8)]
    for number, agent in enumerate(agents, 1):
        agent.turn(fresh(9), fresh(7))
        assert tasks(*agents) == number
    order = random.Random(7)
    for _ in range(200):
        order.choice(agents).turn(fresh(order.randrange(1, 20)), fresh(order.randrange(1, 20)))
        assert tasks(*agents) == 8


def test_a_first_question_shorter_than_a_block_still_makes_its_own_task() -> None:
    lineage = Lineage(BLOCK * 4)

    def blocks(tokens: list[int]) -> list[tuple[int, ...]]:
        return [tuple(tokens[:end]) for end in range(BLOCK * 4, len(tokens) + 1, BLOCK * 4)]

    system = list(range(BLOCK * 4 * 3))
    first, second = system + fresh(12), system + fresh(14)
    one = lineage.begin(blocks(first), first)
    lineage.end(one, blocks(first), first)
    assert lineage.begin(blocks(second), second) != one


def test_two_attempts_at_the_same_prompt_at_once_are_two_tasks() -> None:
    lineage = Lineage(BLOCK)
    question = SYSTEM + fresh(20)
    left, right = Agent(lineage, question).ask(), Agent(lineage, question).ask()
    left.answered(fresh(1), fresh(8))  # outputs of less than a block: both stop after the same one
    right.answered(fresh(1), fresh(8))
    for _ in range(3):
        left.ask()
        right.turn(fresh(5), fresh(5))
        left.answered(fresh(5), fresh(5))
    assert tasks(left, right) == 2


def test_a_generation_prompt_that_vanishes_from_the_history_does_not_make_a_new_task() -> None:
    lineage = Lineage(BLOCK)
    header = [1, 2, 3, 4, 5, 6]
    agent = Agent(lineage, SYSTEM + fresh(20))
    for _ in range(5):
        history = agent.prompt
        agent.prompt = history + header
        agent.ask().answered(fresh(10), [])
        agent.prompt = [*history, 1, 2, 3, *fresh(12)]  # thinking stripped, then the answer and a new message
    assert tasks(agent) == 1


def test_an_agent_that_edits_its_history_stays_one_task() -> None:
    lineage = Lineage(BLOCK)
    agent, other = Agent(lineage, SYSTEM + fresh(20)), Agent(lineage, SYSTEM + fresh(20))
    other.turn(fresh(8), fresh(8))
    for turn in range(12):
        agent.turn(fresh(8), fresh(8))
        if turn % 3 == 2:  # condense: keep the first prompt, replace the rest by a summary
            agent.prompt = agent.prompt[: len(SYSTEM) + 20] + fresh(15)
        if turn % 4 == 3:  # mask an old observation in place
            agent.prompt[len(SYSTEM) + 24 : len(SYSTEM) + 28] = [0, 0, 0, 0]
    assert tasks(agent) == 1
    assert tasks(agent, other) == 2


def test_a_sub_agent_that_starts_from_its_parents_context_is_a_task_of_its_own() -> None:
    lineage = Lineage(BLOCK)
    parent = Agent(lineage, SYSTEM + fresh(20)).turn(fresh(8), fresh(8))
    parent.ask()
    child = Agent(lineage, parent.prompt + fresh(12)).turn(fresh(8), fresh(8))  # while the parent is running
    child.turn(fresh(8), fresh(8))
    parent.answered(fresh(8), fresh(8)).turn(fresh(8), fresh(8))
    child.turn(fresh(8), fresh(8))
    assert (tasks(parent), tasks(child), tasks(parent, child)) == (1, 1, 2)


def test_two_forks_of_an_idle_parent_and_the_parent_itself_are_three_tasks() -> None:
    lineage = Lineage(BLOCK)
    parent = Agent(lineage, SYSTEM + fresh(20)).turn(fresh(8), fresh(8)).turn(fresh(8), fresh(8))
    forks = [Agent(lineage, parent.prompt[:-8] + fresh(16)) for _ in range(2)]
    for _ in range(3):
        for agent in (*forks, parent):
            agent.ask()
        for agent in (*forks, parent):
            agent.answered(fresh(8), fresh(8))
    assert len({agent.tasks[-1] for agent in (*forks, parent)}) == 3


def test_the_same_text_under_another_salt_is_another_task() -> None:
    lineage = Lineage(BLOCK)
    prompt = SYSTEM + fresh(20)
    hashes = chain(prompt)
    one = lineage.begin(hashes, prompt)
    lineage.end(one, hashes, prompt)
    assert lineage.begin([("salt", block) for block in hashes], prompt) != one


def test_prompts_shorter_than_a_block_leave_nothing_behind() -> None:
    lineage = Lineage(BLOCK)
    for _ in range(100):
        lineage.end(lineage.begin([], [1, 2]), [], [1, 2])
    assert len(lineage) == 0


def test_memory_stays_bounded_however_many_tasks_come() -> None:
    lineage = Lineage(BLOCK, max_blocks=400, max_tasks=50)
    for _ in range(3000):
        prompt = fresh(6 * BLOCK)
        number = lineage.begin(chain(prompt), prompt)
        if number % 3:  # the others never finish, as if a client of the engine had lost them
            lineage.end(number, chain(prompt), prompt)
        assert len(lineage) <= 3 * 400 + 12
    assert len(lineage._tasks) <= 50
    assert sum(map(len, lineage._tips.values())) <= 3 * 50


def test_a_task_in_use_survives_any_amount_of_other_traffic() -> None:
    lineage = Lineage(BLOCK, max_blocks=400, max_tasks=50)
    agent = Agent(lineage, SYSTEM + fresh(20))
    for _ in range(60):
        agent.turn(fresh(2), fresh(2))
        for _ in range(20):
            Agent(lineage, fresh(12)).turn(fresh(2), [])
    assert tasks(agent) == 1


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(0, 3))
def test_random_interleavings_with_requests_in_flight_keep_every_agent_apart(seed, count, shared_blocks) -> None:  # type: ignore[no-untyped-def]
    order = random.Random(seed)
    lineage = Lineage(BLOCK)
    system = list(range(shared_blocks * BLOCK + order.randrange(BLOCK)))
    agents = [Agent(lineage, system + fresh(order.randrange(3 * BLOCK, 6 * BLOCK))) for _ in range(count)]
    running: list[Agent] = []
    for _ in range(60):
        agent = order.choice(agents)
        if agent in running:
            running.remove(agent)
            agent.answered(fresh(order.randrange(0, 9)), fresh(order.randrange(1, 9)))
        else:
            running.append(agent.ask())
        assert all(tasks(each) <= 1 for each in agents)
        assert tasks(*agents) == sum(1 for each in agents if each.tasks)
