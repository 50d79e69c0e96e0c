//! From a URL to a client, and what is said when there is no way.

use tenure::ErrorKind;

/// What the URLs of servers begin with, of the drivers that are compiled in.
const SERVERS: &[&str] = &[
    #[cfg(feature = "redis")]
    "redis://",
    #[cfg(feature = "redis")]
    "redis+cluster://",
    #[cfg(feature = "fred")]
    "fred+redis://",
    #[cfg(all(feature = "redlock", feature = "redis"))]
    "redlock+redis://",
    #[cfg(all(feature = "redlock", feature = "fred"))]
    "redlock+fred+redis://",
    #[cfg(feature = "etcd")]
    "etcd://",
];

/// Those without a host.
const LOCAL: &[&str] = &[
    #[cfg(feature = "memory")]
    "memory:",
    #[cfg(feature = "sqlite")]
    "sqlite:/dev/null/no.db",
];

async fn refused(url: &str) -> String {
    let error = tenure::connect(url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}: {error}");
    format!("{error} {error:?}")
}

#[tokio::test]
async fn an_unknown_parameter_lists_the_known_ones_with_every_driver() {
    let servers = SERVERS.iter().map(|scheme| format!("{scheme}app:s3cret@host/"));
    let local = LOCAL.iter().map(|url| String::from(*url));
    for url in servers.chain(local) {
        for url in [url.clone(), url.to_ascii_uppercase()] {
            let text = refused(&format!("{url}?prefx=s3cret")).await;
            for word in ["\"prefx\"; known are ", "op_timeout_ms", "presence_ms", "ttl_ms"] {
                assert!(text.contains(word), "{url}: {text}");
            }
            assert!(!text.to_ascii_lowercase().contains("s3cret"), "{url}: {text}");
            for name in ["op_timeout_ms", "presence_ms", "ttl_ms"] {
                let text = refused(&format!("{url}?{name}=1s")).await;
                assert!(text.contains(&format!("{name} is not a number of milliseconds")), "{url}: {text}");
                let error = tenure::connect_backend(&format!("{url}?{name}=1000")).await.unwrap_err();
                assert!(error.message().contains("is a setting of the client"), "{url}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn every_driver_takes_a_floor_for_fences_and_refuses_one_that_nobody_believes_in() {
    let servers = SERVERS.iter().map(|scheme| format!("{scheme}host/"));
    let local = LOCAL.iter().map(|url| String::from(*url));
    for url in servers.chain(local) {
        for floor in ["9223372036854775807", "18446744073709551615", "-1", "many"] {
            let text = refused(&format!("{url}?fence_floor={floor}")).await;
            assert!(text.contains("fence_floor"), "{url}: {text}");
        }
        let text = refused(&format!("{url}?fence_floor=54&prefx=x")).await;
        assert!(text.contains("known are ") && text.contains("fence_floor"), "{url}: {text}");
    }
}

#[cfg(feature = "memory")]
#[tokio::test]
async fn fences_of_a_store_in_memory_begin_beyond_the_floor() {
    for (url, fence) in [("memory:?fence_floor=0", 1), ("memory:floored?fence_floor=41", 42)] {
        let client = tenure::connect(url).await.unwrap();
        assert_eq!(client.lock("a").acquire().await.unwrap().fence().get(), fence, "{url}");
    }
    let client = tenure::connect("memory:").await.unwrap();
    assert!(client.lock("a").acquire().await.unwrap().fence().get() > 1 << 50, "the clock");
}

/// Also where it was forgotten to encode it.
#[tokio::test]
async fn no_part_of_a_password_is_in_any_error() {
    for scheme in SERVERS {
        for rest in [
            "root:s3cret",
            "root:x?s3cret@host",
            "root:x?s3cret=1@host",
            "root:x?y=s3cret@host",
            "root:12?3s3cret@host",
            "root:12?3&s3cret=4&5@host/",
            "root:12/s3cret@host",
            "root:x#s3cret@host",
            "root:s3cret%@host",
            "root:s3cret@host:99999",
            "root:s3cret@ho st",
            "root:s3cret@",
            "root:s3cret@host?s3cret@=1",
        ] {
            let text = refused(&format!("{scheme}{rest}")).await;
            assert!(!text.contains("s3cret") && !text.contains("root"), "{scheme}{rest}: {text}");
        }
    }
}

#[cfg(feature = "memory")]
mod memory {
    use super::ErrorKind;

    #[tokio::test(start_paused = true)]
    async fn each_nameless_store_is_new_and_named_ones_meet() {
        let (one, other) = (tenure::connect("memory:").await.unwrap(), tenure::connect("memory:").await.unwrap());
        assert_eq!(one.driver(), "memory");
        let held = one.lock("a").acquire().await.unwrap();
        let elsewhere = other.lock("a").try_acquire().await.unwrap();
        assert!(elsewhere.is_some(), "two stores");
        drop((held, elsewhere));

        let url = "memory:connect-test_1.0";
        let (one, other) = (tenure::connect(url).await.unwrap(), tenure::connect(url).await.unwrap());
        let held = one.lock("a").acquire().await.unwrap();
        assert!(other.lock("a").try_acquire().await.unwrap().is_none(), "one store");
        held.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn settings_of_the_client_are_in_the_url() {
        let client = tenure::connect("Memory:?ttl_ms=7000&op_timeout_ms=250&presence_ms=9000").await.unwrap();
        let guard = client.lock("a").acquire().await.unwrap();
        let left = client.lock("a").inspect().await.unwrap().holder.unwrap().remaining.unwrap();
        assert!(left <= std::time::Duration::from_secs(7), "{left:?}");
        guard.release().await.unwrap();
        let builder = tenure::connect_builder("memory:?ttl_ms=7000").await.unwrap();
        assert!(builder.holders_per_grant(1).build().is_ok());
        for (setting, word) in [("ttl_ms=1", "ttl"), ("op_timeout_ms=0", "op_timeout"), ("presence_ms=1", "presence")] {
            let error = tenure::connect(&format!("memory:?{setting}")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(word), "{error}");
        }
    }

    #[tokio::test]
    async fn a_memory_url_with_more_than_a_name_is_refused() {
        for url in ["memory://host/path", "memory:a@b", &format!("memory:{}", "x".repeat(65))] {
            let error = tenure::connect(url).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}");
            assert!(error.message().contains("memory:"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_unknown_scheme_lists_the_known_ones() {
        let error = tenure::connect("zookeeper://user:s3cret@host").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains("\"zookeeper\"") && text.contains("redis://") && !text.contains("s3cret"), "{text}");
    }
}

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn redis_left_out_names_the_feature() {
    for url in ["redis://user:s3cret@host", "rediss://host", "redis+unix:///path"] {
        let error = tenure::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{url}");
        assert!(error.message().contains("enable `redis`") && !error.message().contains("s3cret"), "{error}");
    }
}

#[cfg(not(feature = "etcd"))]
#[tokio::test]
async fn etcd_left_out_names_the_feature() {
    for url in ["etcd://user:s3cret@host", "etcds://host"] {
        let error = tenure::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{url}");
        assert!(error.message().contains("enable `etcd`") && !error.message().contains("s3cret"), "{error}");
    }
}

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn sqlite_left_out_names_the_feature() {
    let error = tenure::connect("sqlite:locks.db").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("enable `sqlite`"), "{error}");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_sqlite_url_reaches_its_driver() {
    let error = tenure::connect("sqlite:/nowhere/at/all/locks.db").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.message().contains("/nowhere/at/all"), "{error}");
    let error = tenure::connect("sqlite://host/locks.db").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[cfg(not(feature = "memory"))]
#[tokio::test]
async fn memory_left_out_names_the_feature() {
    let error = tenure::connect("memory:").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("enable `memory`"), "{error}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_redis_url_reaches_its_driver() {
    let error = tenure::connect("redis+unix:///nowhere/at/all").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = tenure::connect("redis://:s3cret@host?prefx=a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("prefx") && !error.message().contains("s3cret"), "{error}");
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn an_etcd_url_reaches_its_driver() {
    // A port that was free a moment ago: nobody listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = tenure::connect(&format!("etcd://127.0.0.1:{port}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = tenure::connect("etcd://user:s3cret@host/?prefx=a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("prefx") && !error.message().contains("s3cret"), "{error}");
}

#[cfg(all(feature = "etcd", not(feature = "tls")))]
#[tokio::test]
async fn an_encrypted_etcd_url_without_tls_names_the_feature() {
    let error = tenure::connect("etcds://127.0.0.1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("feature `tls`"), "{error}");
}

#[cfg(not(feature = "redlock"))]
#[tokio::test]
async fn redlock_left_out_names_both_features() {
    for (url, names) in
        [("redlock+rediss://a,b", "`redlock` and `redis`"), ("redlock+fred+redis://a", "`redlock` and `fred`")]
    {
        let error = tenure::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{url}");
        assert!(error.message().contains(names), "{error}");
    }
}

#[cfg(feature = "memory")]
mod of_others {
    use std::time::Duration;

    use tenure::driver::{Backend, BackendUrl};
    use tenure::memory::MemoryDriver;
    use tenure::{Connectors, ErrorKind, Result};

    /// A connector over one store, with a parameter of its own.
    fn toy(store: &MemoryDriver) -> impl Fn(BackendUrl) -> std::future::Ready<Result<Backend>> + Send + Sync + 'static {
        let store = store.clone();
        move |mut url| {
            assert!(url.text("ttl_ms").is_none(), "the client's settings are taken out before");
            let read = url.number::<u16>("rooms").and_then(|_| url.finish());
            std::future::ready(read.map(|()| store.another_client().into()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_scheme_of_ones_own_connects_with_the_settings_of_the_client() {
        let store = MemoryDriver::new();
        let connectors = Connectors::new().with("Toy", toy(&store)).unwrap().with("toy+tls", toy(&store)).unwrap();
        let one = connectors.connect("toy://app:s3cret@host/?rooms=3&ttl_ms=7000").await.unwrap();
        let other = connectors.clone().connect("TOY+TLS:").await.unwrap();
        let guard = one.lock("a").acquire().await.unwrap();
        assert!(guard.remaining() <= Duration::from_secs(7));
        assert!(other.lock("a").try_acquire().await.unwrap().is_none(), "one store");
        let backend = connectors.connect_backend("toy:").await.unwrap();
        assert!(tenure::Client::new(backend).lock("a").try_acquire().await.unwrap().is_none());
        assert!(connectors.connect("memory:").await.is_ok(), "drivers of the crate are there as well");
    }

    #[tokio::test(start_paused = true)]
    async fn two_parts_of_a_program_mean_different_things_by_one_scheme() {
        let (one, other) = (MemoryDriver::new(), MemoryDriver::new());
        let one = Connectors::new().with("toy", toy(&one)).unwrap().connect("toy:").await.unwrap();
        let other = Connectors::new().with("toy", toy(&other)).unwrap().connect("toy:").await.unwrap();
        let held = one.lock("a").acquire().await.unwrap();
        assert!(other.lock("a").try_acquire().await.unwrap().is_some(), "two stores");
        assert_eq!(tenure::connect("toy:").await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        held.release().await.unwrap();
    }

    #[tokio::test]
    async fn what_a_connector_refuses_names_all_parameters_and_no_password() {
        let connectors = Connectors::new().with("toy", toy(&MemoryDriver::new())).unwrap();
        for (rest, words) in [
            ("?room=3", "\"room\"; known are "),
            ("?room=3", "rooms, ttl_ms"),
            ("?rooms=s3cret", "rooms is not a number"),
            ("?ttl_ms=s3cret", "ttl_ms is not a number of milliseconds"),
        ] {
            let error = connectors.connect(format!("toy://app:s3cret@host/{rest}")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = format!("{error} {error:?}");
            assert!(text.contains(words) && !text.contains("s3cret"), "{rest}: {text}");
        }
        let error = connectors.connect_backend("toy:?ttl_ms=7000").await.unwrap_err();
        assert!(error.message().contains("is a setting of the client"), "{error}");
        for url in ["zk://app:s3cret@host", "nothing"] {
            let text = connectors.connect(url).await.unwrap_err().to_string();
            assert!(text.contains("; toy:") && !text.contains("s3cret"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_scheme_belongs_to_one_connector() {
        let store = MemoryDriver::new();
        let connectors = Connectors::new().with("toy", toy(&store)).unwrap();
        for (scheme, words) in [
            ("TOY", "the scheme \"toy\" already"),
            ("redis", "one of the crate tenure"), // compiled in or not
            ("redlock+fred+redis", "one of the crate tenure"),
            ("to y", "is not a scheme"),
        ] {
            let error = connectors.clone().with(scheme, toy(&store)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(words), "{scheme}: {error}");
        }
        assert!(format!("{connectors:?}").contains("\"toy\""));
    }

    #[cfg(not(feature = "etcd"))]
    #[tokio::test]
    async fn a_driver_that_was_left_out_is_reported_as_ever() {
        let connectors = Connectors::new().with("toy", toy(&MemoryDriver::new())).unwrap();
        let error = connectors.connect("etcd://host").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("enable `etcd`"), "{error}");
    }
}
