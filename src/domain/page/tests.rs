//! What page tokens promise, in sentences.

use proptest::prelude::*;

use super::*;
use crate::domain::{Principal, Tenant};

const OLD: &str = "old:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const NEW: &str = "new:1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100";
const NOW: i64 = 1_800_000_000_000_000;
/// The first and the last microsecond that a protobuf timestamp can name.
const FIRST_US: i64 = -62_135_596_800_000_000;
const LAST_US: i64 = 253_402_300_799_999_999;
const LIFE: Duration = Duration::from_secs(600);

fn tokens(keys: &str) -> PageTokens {
    PageTokens::new(KeyRing::parse(keys).unwrap(), LIFE)
}

fn scope() -> Scope {
    scope_of("acme", "key:ann")
}

fn scope_of(tenant: &str, owner: &str) -> Scope {
    Scope::new(
        Tenant::parse("tenant", tenant).unwrap(),
        Principal::parse("principal", owner).unwrap(),
    )
}

fn place() -> Place {
    let task = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ff).into();
    Place { cursor: Cursor { status_at_us: NOW - 5_000_000, task }, total: 1234 }
}

fn filters() -> Filters {
    Filters {
        context: Some(ContextId::from_stored("c-1")),
        state: Some(TaskState::Working),
        since_us: Some(NOW - 9_000_000),
        history: 3,
        artifacts: true,
    }
}

const INVALID_SIGNATURE: Result<Place, TokenError> = Err(TokenError::Invalid(Reason::Signature));

#[test]
fn the_format_is_stable() {
    let token = tokens(OLD).issue(&scope(), &filters(), &place(), NOW);
    assert_eq!(
        token,
        "AQNvbGQIwOmwwvKimQMSEAGQAAAAAHAAgAAAAAAAAP8YwO-Vw7E0INIJ247p228M79-U2B3NTPYtXA"
    );
    assert_eq!(tokens(OLD).read(&scope(), &filters(), &token, NOW), Ok(place()));
}

#[test]
fn every_single_bit_counts() {
    let ours = tokens(OLD);
    let token = ours.issue(&scope(), &filters(), &place(), NOW);
    let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
    for at in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[at / 8] ^= 1 << (at % 8);
        let text = URL_SAFE_NO_PAD.encode(changed);
        let answer = ours.read(&scope(), &filters(), &text, NOW);
        assert!(matches!(answer, Err(TokenError::Invalid(_))), "bit {at}: {answer:?}");
    }
}

#[test]
fn every_single_character_counts_changed_added_or_left_out() {
    let ours = tokens(OLD);
    let token = ours.issue(&scope(), &filters(), &place(), NOW);
    let refused = |text: &str| {
        let answer = ours.read(&scope(), &filters(), text, NOW);
        assert!(matches!(answer, Err(TokenError::Invalid(_))), "{text}: {answer:?}");
    };
    for at in 0..token.len() {
        let (before, rest) = token.split_at(at);
        let (here, after) = rest.split_at(1);
        refused(&format!("{before}{after}"));
        for other in (0..=127).map(char::from) {
            if !here.starts_with(other) {
                refused(&format!("{before}{other}{after}"));
            }
            refused(&format!("{before}{other}{rest}"));
        }
    }
    for more in (0..=127).map(char::from) {
        refused(&format!("{token}{more}"));
    }
}

#[test]
fn a_token_shows_no_name_of_what_it_is_bound_to() {
    let bound = Filters { context: Some(ContextId::from_stored("a-private-context")), ..filters() };
    let scope = scope_of("a-private-tenant", "key:a-private-owner");
    let token = tokens(OLD).issue(&scope, &bound, &place(), NOW);
    let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
    assert!(!bytes.windows(9).any(|seen| seen == b"a-private"));
}

/// A token with a payload of our choice and a signature that holds.
fn signed(payload: &[u8]) -> String {
    let keys = KeyRing::parse(OLD).unwrap();
    let (id, key) = keys.signing();
    let mut bytes = vec![VERSION, u8::try_from(id.len()).unwrap()];
    bytes.extend_from_slice(id.as_bytes());
    bytes.extend_from_slice(payload);
    let tag = sign(key, &bytes, &scope(), &filters()).finalize().into_bytes();
    bytes.extend_from_slice(&tag[..TAG_BYTES]);
    URL_SAFE_NO_PAD.encode(bytes)
}

#[test]
fn a_signature_does_not_make_a_place_of_a_wrong_id_or_time() {
    let good = PageToken {
        status_at_us: place().cursor.status_at_us,
        task_id: place().cursor.task.uuid().into_bytes().to_vec().into(),
        expires_at_ms: NOW / 1000 + 600_000,
        total_size: place().total,
    };
    let ours = tokens(OLD);
    let read = |payload: &[u8]| ours.read(&scope(), &filters(), &signed(payload), NOW);
    assert_eq!(read(&good.encode_to_vec()), Ok(place()));
    let malformed = Err(TokenError::Invalid(Reason::Malformed));
    for length in [0, 1, 15, 17, 36] {
        let bad = PageToken { task_id: vec![b'7'; length].into(), ..good.clone() };
        assert_eq!(read(&bad.encode_to_vec()), malformed, "an id of {length} bytes");
    }
    for status_at_us in [i64::MIN, FIRST_US - 1, LAST_US + 1, i64::MAX] {
        let bad = PageToken { status_at_us, ..good.clone() };
        assert_eq!(read(&bad.encode_to_vec()), malformed, "the time {status_at_us}");
        let late = PageToken { expires_at_ms: 0, ..bad };
        assert_eq!(read(&late.encode_to_vec()), malformed, "the time {status_at_us}, and late");
    }
    for status_at_us in [FIRST_US, LAST_US] {
        let far = PageToken { status_at_us, ..good.clone() };
        assert!(read(&far.encode_to_vec()).is_ok(), "the time {status_at_us}");
    }
    assert_eq!(read(b"\x0a"), malformed, "a field that is cut off");
}

#[test]
fn a_token_works_for_its_own_listing_alone() {
    let ours = tokens(OLD);
    let token = ours.issue(&scope(), &filters(), &place(), NOW);
    for other in
        [scope_of("other", "key:ann"), scope_of("acme", "key:bob"), scope_of("acmek", "ey:ann")]
    {
        assert_eq!(ours.read(&other, &filters(), &token, NOW), INVALID_SIGNATURE);
    }
    let others = [
        Filters { context: None, ..filters() },
        Filters { context: Some(ContextId::from_stored("c-2")), ..filters() },
        Filters { state: None, ..filters() },
        Filters { state: Some(TaskState::Completed), ..filters() },
        Filters { since_us: None, ..filters() },
        Filters { since_us: Some(NOW), ..filters() },
        Filters { history: 4, ..filters() },
        Filters { artifacts: false, ..filters() },
    ];
    for other in others {
        assert_eq!(ours.read(&scope(), &other, &token, NOW), INVALID_SIGNATURE, "{other:?}");
    }
}

#[test]
fn offsets_of_older_servers_and_rubbish_are_refused() {
    let ours = tokens(OLD);
    for text in ["0", "50", "", "AQ", "!", "AgNvbGQ", &"A".repeat(300), "AQ\0", "ä"] {
        let answer = ours.read(&scope(), &filters(), text, NOW);
        assert!(matches!(answer, Err(TokenError::Invalid(_))), "{text}: {answer:?}");
    }
}

#[test]
fn a_token_expires_after_its_life_and_not_before() {
    let ours = tokens(OLD);
    let token = ours.issue(&scope(), &filters(), &place(), NOW);
    let later = |s: i64| ours.read(&scope(), &filters(), &token, NOW + s * 1_000_000);
    assert_eq!(later(600), Ok(place()));
    assert_eq!(later(601), Err(TokenError::Expired));
    let next_ms = ours.read(&scope(), &filters(), &token, NOW + 600_001_000);
    assert_eq!(next_ms, Err(TokenError::Expired), "to the millisecond");
    let elsewhere = scope_of("acme", "key:bob");
    let answer = ours.read(&elsewhere, &filters(), &token, NOW + 601_000_000);
    assert_eq!(answer, INVALID_SIGNATURE, "expiry is told to nobody else");
}

#[test]
fn rotation_keeps_old_tokens_and_dropping_a_key_ends_them() {
    let before = tokens(OLD).issue(&scope(), &filters(), &place(), NOW);
    let both = tokens(&format!("{NEW},{OLD}"));
    assert_eq!(both.read(&scope(), &filters(), &before, NOW), Ok(place()));
    let after = both.issue(&scope(), &filters(), &place(), NOW);
    assert_eq!(tokens(NEW).read(&scope(), &filters(), &after, NOW), Ok(place()));
    let other_order = tokens(&format!("{OLD},{NEW}"));
    assert_eq!(other_order.read(&scope(), &filters(), &after, NOW), Ok(place()));
    let dropped = tokens(NEW).read(&scope(), &filters(), &before, NOW);
    assert_eq!(dropped, Err(TokenError::Invalid(Reason::Key)));
}

#[test]
fn the_longest_tokens_of_ours_fit() {
    let key = OLD.replace("old", "sixteen-letters-");
    let widest = Place {
        cursor: Cursor { status_at_us: i64::MIN, task: Uuid::max().into() },
        total: i64::MIN,
    };
    let token = tokens(&key).issue(&scope(), &filters(), &widest, NOW);
    assert!(token.len() <= TEXT_MAX, "{}", token.len());
    assert!(token.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'));
}

#[test]
fn keys_are_checked_and_never_shown() {
    let problem = |text: &str| KeyRing::parse(text).unwrap_err();
    assert_eq!(problem(""), KeyError::Empty);
    assert_eq!(problem("abc"), KeyError::Form(1));
    assert_eq!(problem(&format!("{OLD},x")), KeyError::Form(2));
    assert_eq!(problem(&OLD.replace("old", "Old")), KeyError::Id(1));
    assert_eq!(problem("k:0011"), KeyError::Short("k".to_owned()));
    assert_eq!(problem(&format!("{OLD},{OLD}")), KeyError::Twice("old".to_owned()));
    assert_eq!(
        format!("{:?}", KeyRing::parse(&format!("{NEW},{OLD}")).unwrap()),
        r#"["new", "old"]"#
    );
    let (_, text) = KeyRing::generate().unwrap();
    assert!(KeyRing::parse(&text).is_ok());
}

#[test]
fn page_sizes_default_and_are_bounded() {
    for (asked, size) in [(None, 50), (Some(0), 50), (Some(1), 1), (Some(100), 100)] {
        assert_eq!(PageSize::resolve(asked).unwrap().get(), size);
    }
    for asked in [-1, 101, i32::MIN, i32::MAX] {
        let violation = PageSize::resolve(Some(asked)).unwrap_err();
        assert_eq!(violation.field, "page_size");
        assert_eq!(violation.problem, "must be from 1 to 100; 0 or absent means 50");
    }
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(
        status_at_us in FIRST_US..=LAST_US,
        id in any::<u128>(),
        total in any::<i64>(),
        tenant in "[^/\\p{Cc}]{0,40}",
        owner in "[^\\p{Cc}]{1,40}",
        since in any::<Option<i64>>(),
        history in any::<u32>(),
    ) {
        let scope = scope_of(&tenant, &owner);
        let filters = Filters { since_us: since, history, ..Filters::default() };
        let cursor = Cursor { status_at_us, task: Uuid::from_u128(id).into() };
        let place = Place { cursor, total };
        let ours = tokens(OLD);
        let token = ours.issue(&scope, &filters, &place, NOW);
        prop_assert_eq!(ours.read(&scope, &filters, &token, NOW), Ok(place));
    }
}
