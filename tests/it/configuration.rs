//! `docs/configuration.md` says what the code does, and settings win over each other in the order that it tells.

#![cfg(feature = "memory")]

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::memory::MemoryDriver;
use tenure::{Client, ClientBuilder, ClientConfig, Confirmation, ErrorKind};

/// A row of the table: the words in `code` of each column.
struct Row {
    field: &'static str,
    parameter: &'static str,
    variable: &'static str,
    default: &'static str,
    allowed: Vec<&'static str>,
}

/// The rows of all settings, the URL aside.
fn rows() -> Vec<Row> {
    let page = include_str!("../../docs/configuration.md");
    let table = page.lines().skip_while(|line| !line.starts_with("| field |")).skip(2);
    let rows: Vec<Row> = table.take_while(|line| line.starts_with('|')).map(row).collect();
    assert_eq!((rows[0].field, rows[0].variable), ("url", "TENURE_URL"));
    rows.into_iter().skip(1).collect()
}

fn row(line: &'static str) -> Row {
    let code = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    let cells: Vec<_> = line.split('|').skip(1).map(code).collect();
    let only = |at: usize| cells[at].first().copied().unwrap_or_default();
    Row { field: only(0), parameter: only(1), variable: only(2), default: only(3), allowed: cells[4].clone() }
}

/// With one variable, which says this.
fn environment(variable: &str, value: &str) -> tenure::Result<ClientConfig> {
    ClientConfig::from_variables("TENURE", |name| (name == variable).then(|| value.into()))
}

/// What a builder is set to, its backend aside.
fn settings(builder: &ClientBuilder) -> String {
    let text = format!("{builder:?}");
    text[text.find(", ttl: ").unwrap()..].to_owned()
}

fn builder() -> ClientBuilder {
    Client::builder(MemoryDriver::new())
}

/// Values that are allowed and no defaults.
const OTHERS: &[(&str, &str, &str)] = &[
    ("ttl", "20s", "20000"),
    ("op_timeout", "500ms", "500"),
    ("presence", "1m30s", "90000"),
    ("parked_turn", "3s", "3000"),
    ("drift_rate", "0.1", "0.1"),
    ("drift_fixed", "5ms", "5"),
    ("max_holds", "7", "7"),
    ("holders_per_grant", "0", "0"),
    ("confirmation", "first", "first"),
];

#[tokio::test]
async fn the_table_has_every_setting_with_its_names_and_its_default() {
    let untouched = settings(&builder());
    let rows = rows();
    assert_eq!(
        rows.iter().map(|row| row.field).collect::<Vec<_>>(),
        OTHERS.iter().map(|(field, ..)| *field).collect::<Vec<_>>()
    );
    for (row, (field, written, in_url)) in rows.iter().zip(OTHERS) {
        assert_eq!(row.variable, format!("TENURE_{}", field.to_ascii_uppercase()));
        let default = environment(row.variable, row.default).unwrap();
        assert_ne!(default, ClientConfig::default(), "{field}: its variable is read");
        assert_eq!(settings(&default.apply(builder()).unwrap()), untouched, "{field}: its default");

        let other = settings(&environment(row.variable, written).unwrap().apply(builder()).unwrap());
        assert_ne!(other, untouched, "{field}");
        let url = format!("memory:?{}={in_url}", row.parameter);
        assert_eq!(settings(&tenure::connect_builder(&url).await.unwrap()), other, "{url}");
    }

    let error = tenure::connect("memory:?a=b").await.unwrap_err();
    let known: BTreeSet<_> = error.message().rsplit_once("known are ").unwrap().1.split(", ").collect();
    let reported = rows.iter().map(|row| row.parameter).chain(["fence_floor"]).collect();
    assert_eq!(known, reported, "every parameter is in the table");
}

#[tokio::test]
async fn a_bad_value_names_where_it_was_and_what_is_allowed_and_is_not_repeated() {
    let secret = "redis://app:s3cret@host/";
    for row in rows() {
        for value in [secret, "-1", "999999days"] {
            let error = environment(row.variable, value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = format!("{error} {error:?}");
            assert!(text.contains(&format!("the variable {} ", row.variable)) && !text.contains("s3cret"), "{text}");
            for allowed in &row.allowed {
                assert!(text.contains(allowed), "{text}: not {allowed}");
            }
            let url = format!("memory:?{}={}", row.parameter, value.replace('@', "%40"));
            let text = tenure::connect(&url).await.unwrap_err().to_string();
            assert!(text.contains(&format!("the parameter {} ", row.parameter)), "{text}");
            assert!(text.contains("allowed are ") && !text.contains("s3cret"), "{text}");
        }
    }
    for prefix in ["", "A=B", "A B"] {
        assert!(ClientConfig::from_env(prefix).is_err(), "{prefix}");
    }
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt as _;
        let bad = |name: &str| (name == "APP_TTL").then(|| std::ffi::OsString::from_vec(vec![0xff]));
        let error = ClientConfig::from_variables("APP", bad).unwrap_err();
        assert!(error.message().contains("APP_TTL is not UTF-8"), "{error}");
    }
}

#[tokio::test]
async fn the_builder_wins_over_the_environment_that_over_a_file_that_over_the_url_and_that_over_the_default() {
    let mut file = ClientConfig::new("memory:?ttl_ms=1000&op_timeout_ms=100&presence_ms=9000&max_holds=9");
    file.ttl = Some(Duration::from_secs(2));
    file.op_timeout = Some(Duration::from_millis(200));
    file.presence = Some(Duration::from_secs(8));
    let variables = |name: &str| match name {
        "TENURE_TTL" => Some("3s".into()),
        "TENURE_OP_TIMEOUT" => Some("300ms".into()),
        "TENURE_PRESENCE" => Some("".into()), // as if it were not there
        _ => None,
    };
    let config = ClientConfig::from_variables("TENURE", variables).unwrap().or(file);
    let reported = tenure::connect_builder(config).await.unwrap().ttl(Duration::from_secs(4));
    let expected = builder()
        .ttl(Duration::from_secs(4)) // the builder
        .op_timeout(Duration::from_millis(300)) // the environment
        .presence(Duration::from_secs(8)) // the file
        .max_holds(9); // the URL
    assert_eq!(settings(&reported), settings(&expected));
    assert!(reported.build().is_ok());
}

#[tokio::test]
async fn a_bad_parameter_is_refused_although_a_field_wins_over_it() {
    let mut config = ClientConfig::new("memory:?ttl_ms=soon");
    config.ttl = Some(Duration::from_secs(1));
    assert!(tenure::connect(config).await.unwrap_err().message().contains("ttl_ms"));
    let error = tenure::connect(ClientConfig::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("no URL"), "{error}");
    let mut config = ClientConfig::new("memory:");
    config.drift_rate = Some(0.9);
    assert!(tenure::connect(config).await.unwrap_err().message().contains("drift"));
}

#[test]
fn no_part_of_the_url_but_its_scheme_is_printed() {
    for url in ["redis://app:s3cret@host/0?prefix=s3cret", "app:s3cret", "s3cret", "redis://app:s3cret@host/#@"] {
        let text = format!("{:?}", ClientConfig::new(url));
        assert!(text.contains("url") && !text.contains("s3cret"), "{text}");
    }
    let text = format!("{:?}", ClientConfig::new("redis://host"));
    assert!(text.contains("redis"), "{text}");
}

#[cfg(feature = "blocking")]
#[test]
fn calls_that_block_confirm_behind_unless_somebody_says_otherwise() {
    let of = |to: ClientConfig| settings(&tenure::blocking::connect_builder(to).unwrap());
    let expected = |when| settings(&builder().confirmation(when));
    assert_eq!(of("memory:".into()), expected(Confirmation::Behind));
    assert_eq!(of("memory:?confirmation=first".into()), expected(Confirmation::First));
    let mut config = ClientConfig::new("memory:?confirmation=first");
    config.confirmation = Some(Confirmation::ByRuntime);
    assert_eq!(of(config), expected(Confirmation::ByRuntime));
}

#[cfg(feature = "serde")]
mod file {
    use super::{ClientConfig, Confirmation, Duration, OTHERS, environment, rows};

    fn read(json: &str) -> Result<ClientConfig, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_all_settings_as_text_or_numbers() {
        let mut expected = ClientConfig::new("memory:");
        expected.ttl = Some(Duration::from_secs(90));
        expected.drift_rate = Some(0.05);
        expected.max_holds = Some(7);
        expected.holders_per_grant = Some(0);
        expected.confirmation = Some(Confirmation::Behind);
        let json = r#"{"url": "memory:", "ttl": "1m30s", "drift_rate": 0.05, "max_holds": 7, "holders_per_grant": "0",
                       "confirmation": "behind", "presence": null}"#;
        assert_eq!(read(json), Ok(expected));
        assert_eq!(read("{}"), Ok(ClientConfig::default()));
        for (row, (field, written, _)) in rows().iter().zip(OTHERS) {
            let reported = read(&format!(r#"{{"{field}": "{written}"}}"#)).unwrap();
            assert_eq!(reported, environment(row.variable, written).unwrap(), "{field}");
        }
    }

    #[test]
    fn what_is_unknown_or_bad_is_named_and_values_are_not_repeated() {
        let unknown = read(r#"{"url": "memory:", "tll": "s3cret"}"#).unwrap_err();
        assert!(unknown.contains("unknown field `tll`"), "{unknown}");
        for row in rows() {
            assert!(unknown.contains(&format!("`{}`", row.field)), "{unknown}");
            let text = read(&format!(r#"{{"{}": "s3cret"}}"#, row.field)).unwrap_err();
            assert!(text.contains(&format!("the setting {} ", row.field)) && !text.contains("s3cret"), "{text}");
            for allowed in &row.allowed {
                assert!(text.contains(allowed), "{text}: not {allowed}");
            }
        }
        assert!(read(r#"{"ttl": 30}"#).unwrap_err().contains("the setting ttl has no unit"));
        assert!(read(r#"{"ttl": "1s", "ttl": "2s"}"#).unwrap_err().contains("duplicate field `ttl`"));
        assert!(read(r#"{"max_holds": -1}"#).unwrap_err().contains("the setting max_holds"));
        assert!(read(r#"{"url": true}"#).is_err());
        assert!(read("[]").is_err());
    }
}
