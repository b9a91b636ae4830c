"""Accepted names and ids, and the store keys of a queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glidemq_async.stored.names import QueueKeys, check_id, check_name

controls = st.characters(categories=["Cc"])
plain = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="{}:")


@given(st.text(plain, min_size=1, max_size=64))
def test_plain_text_is_accepted_as_a_name_and_as_an_id(text: str) -> None:
    assert check_name("queue name", text) == text
    assert check_id("job_id", text) == text


@given(st.text(plain, max_size=20), controls, st.text(plain, max_size=20))
def test_control_characters_are_refused_everywhere(before: str, control: str, after: str) -> None:
    for check in (check_name, check_id):
        with pytest.raises(ValueError, match="control character"):
            check("job_id", before + control + after)


@pytest.mark.parametrize("character", "{}:")
def test_characters_with_a_meaning_are_refused_only_in_names(character: str) -> None:
    value = f"a{character}b"
    with pytest.raises(ValueError, match=r"queue name 'a.b' contains"):
        check_name("queue name", value)
    assert check_id("job_id", value) == value


@pytest.mark.parametrize(("check", "limit"), [(check_name, 256), (check_id, 512)])
def test_the_length_of_names_and_ids_is_counted_in_bytes(check: object, limit: int) -> None:
    assert callable(check)
    for character, size in (("a", 1), ("é", 2), ("😀", 4)):
        fitting = character * (limit // size)
        assert check("kind", fitting) == fitting
        with pytest.raises(ValueError, match=f"at most {limit} are allowed"):
            check("kind", fitting + character)


@pytest.mark.parametrize("check", [check_name, check_id])
def test_empty_wrong_and_unencodable_values_are_refused(check: object) -> None:
    assert callable(check)
    with pytest.raises(ValueError, match="kind must not be empty"):
        check("kind", "")
    with pytest.raises(ValueError, match="lone surrogate"):
        check("kind", "a\ud800")
    for wrong in (None, 3, b"bytes"):
        with pytest.raises(TypeError, match="kind must be a str, not"):
            check("kind", wrong)


@pytest.mark.smoke
def test_keys_have_literal_braces() -> None:
    keys = QueueKeys("glide", "emails")
    assert keys.base == "glide:{emails}"
    assert keys.key("fifo") == "glide:{emails}:fifo"
    assert keys.job("17") == "glide:{emails}:job:17"
    assert keys.channel("wake:w1") == "glide:{emails}:wake:w1"
    assert keys == QueueKeys("glide", "emails")
    assert hash(keys) == hash(QueueKeys("glide", "emails"))


def test_keys_refuse_bad_parts() -> None:
    with pytest.raises(ValueError, match="queue name"):
        QueueKeys("glide", "e{mails")
    with pytest.raises(ValueError, match="prefix"):
        QueueKeys("gl:ide", "emails")


@given(st.text(plain, min_size=1, max_size=64))
def test_a_message_names_the_queue_of_a_base_key(text: str) -> None:
    assert QueueKeys.queue_of(QueueKeys("shop", text).base) == text


def test_a_text_without_a_queue_stays_as_it_is() -> None:
    assert QueueKeys.queue_of("shop") == "shop"
