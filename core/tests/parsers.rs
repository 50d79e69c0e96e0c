//! Parsers of what comes from outside are tried with inputs that nobody thought of.

use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use tenure_core::driver::{BackendUrl, host_and_port};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueName, Reason, Recurrence};
use tenure_core::{Error, ErrorKind, FenceFloor, Label, LockName, OwnerId, OwnerToken, Result};
use tenure_testkit::inputs::{self, SECRET, assert_sound, frugally};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What URLs are made of. No word is in the secret, nor it in a word.
const URLS: &[&str] = &[
    "redis://",
    "redis+cluster://",
    "redis+sentinel://",
    "redis+unix://",
    "etcd://",
    "memory:",
    "://",
    ":",
    "/",
    "?",
    "&",
    "=",
    "@",
    "#",
    "%",
    "%40",
    "%3F",
    "%zz",
    "%c3%28",
    ",",
    "[",
    "]",
    "::1",
    "a",
    "b.c",
    "7000",
    "65536",
    "0",
    "-1",
    "18446744073709551616",
    "user",
    "number=",
    "millis=",
    "word=",
    "one",
    "true",
    "fence_floor=",
    "text=",
    "file=",
    ";",
    ".",
    "\u{e9}",
];

/// All that drivers ask of a URL.
fn read(text: &str) -> Result<BackendUrl> {
    let mut url = BackendUrl::parse(text)?;
    url.hosts(6379)?;
    url.file().map(drop).or_else(|error| if url.has_slashes() { Ok(()) } else { Err(error) })?;
    url.number::<u32>("number")?;
    url.millis("millis")?;
    url.choice("word", &[("one", 1), ("two", 2)])?;
    url.truth("truth")?;
    FenceFloor::read(&mut url)?;
    url.file_of("file")?;
    url.text("text");
    url.clone().finish()?;
    Ok(url)
}

fn reported(error: &Error) {
    assert_sound(error, &[SECRET]);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

proptest! {
    #![proptest_config(inputs::config())]

    #[test]
    fn any_url_is_read_or_refused(text in inputs::text(URLS, 0..16)) {
        match frugally(&MEMORY, || read(&text)) {
            Ok(url) => {
                for (host, port) in url.hosts(1).unwrap() {
                    assert!(!host.is_empty() && port > 0);
                    let v6 = host.contains(':');
                    let spelled = if v6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                    assert_eq!(host_and_port(&spelled, 1).unwrap(), (host, port));
                }
            }
            Err(error) => assert_sound(&error, &[]),
        }
    }

    /// Nothing in a password has to be encoded for its rest to be kept.
    #[test]
    fn no_part_of_a_login_is_in_an_error(
        before in inputs::text(URLS, 0..5),
        after in inputs::text(URLS, 0..5),
        rest in inputs::text(URLS, 0..8),
        named in any::<bool>(),
    ) {
        let login = if named { format!("{before}{SECRET}{after}:{SECRET}") } else { format!("app:{before}{SECRET}{after}") };
        let text = format!("redis://{login}@{rest}");
        match read(&text) {
            Ok(url) => assert!(!format!("{url:?}").contains(SECRET)),
            Err(error) => reported(&error),
        }
    }

    #[test]
    fn a_login_that_is_encoded_comes_back(user in "\\PC{1,12}", password in any::<String>(), host in "[a-z][a-z0-9.]{0,8}") {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let url = BackendUrl::parse(&format!("redis://{}:{}@{host}", encoded(&user), encoded(&password))).unwrap();
        assert_eq!(url.user(), Some(user.as_str()));
        assert_eq!(url.password(), Some(password.as_str()));
        assert_eq!(url.hosts(1).unwrap(), [(host, 1)]);
    }

    #[test]
    fn any_name_is_taken_whole_or_refused(name in prop_oneof![inputs::noise(0..20), inputs::noise(120..132), inputs::noise(250..520)]) {
        fn look<T>(name: &[u8], most: usize, taken: Result<T>, same: impl Fn(&T) -> bool) {
            assert_eq!(taken.is_ok(), (1..=most).contains(&name.len()));
            match taken {
                Ok(taken) => assert!(same(&taken)),
                Err(error) => reported(&error),
            }
        }
        look(&name, LockName::MAX_LEN, LockName::new(&name), |taken| taken.as_bytes() == name && taken.to_string().is_ascii());
        look(&name, QueueName::MAX_LEN, QueueName::new(&name), |taken| {
            taken.as_bytes() == name && !taken.to_string().contains(char::is_control)
        });
        look(&name, MessageId::MAX_LEN, MessageId::named(&name), |taken| taken.as_name() == Some(&name));
        look(&name, ConcurrencyKey::MAX_LEN, ConcurrencyKey::new(&name), |taken| taken.as_bytes() == name);
        let text = String::from_utf8_lossy(&name);
        look(text.as_bytes(), Recurrence::MAX_LEN, Recurrence::new(&*text), |taken| taken.as_str() == text);
        assert_eq!(Label::new(&*text).is_ok(), text.len() <= Label::MAX_LEN);
        assert_eq!(Reason::new(&*text).is_ok(), text.len() <= Reason::MAX_LEN);
        assert!(text.starts_with(Reason::beginning_of(&text).as_str()));
    }

    #[test]
    fn tokens_and_owners_are_read_as_they_are_written(bits in any::<[u8; 16]>(), text in "[A-Za-z0-9_=+/-]{20,24}") {
        let owner = OwnerId::from_bytes(bits);
        let written = owner.to_string();
        assert_eq!(written.parse::<OwnerId>().unwrap(), owner);
        assert_eq!(OwnerToken::parse(&written).unwrap().expose().as_str(), written.as_str());
        match (OwnerToken::parse(&text), text.parse::<OwnerId>()) {
            (Ok(token), Ok(owner)) => assert_eq!((token.expose().as_str(), owner.to_string()), (text.as_str(), text.clone())),
            (Err(error), Err(other)) => {
                assert_sound(&error, &[&text]); // it may be a token with a slip of the pen
                assert_sound(&other, &[]);
            }
            _ => panic!("one of the two took {text}"),
        }
    }
}
