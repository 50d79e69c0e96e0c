//! From a URL to a client, and what is said when there is no way.

use tenure::ErrorKind;

#[cfg(feature = "memory")]
mod memory {
    use super::ErrorKind;

    #[tokio::test(start_paused = true)]
    async fn each_nameless_store_is_new_and_named_ones_meet() {
        let (one, other) = (tenure::connect("memory:").await.unwrap(), tenure::connect("memory:").await.unwrap());
        assert_eq!(one.driver(), "memory");
        let held = one.lock("a").unwrap().acquire().await.unwrap();
        let elsewhere = other.lock("a").unwrap().try_acquire().await.unwrap();
        assert!(elsewhere.is_some(), "two stores");
        drop((held, elsewhere));

        let url = "memory:connect-test_1.0";
        let (one, other) = (tenure::connect(url).await.unwrap(), tenure::connect(url).await.unwrap());
        let held = one.lock("a").unwrap().acquire().await.unwrap();
        assert!(other.lock("a").unwrap().try_acquire().await.unwrap().is_none(), "one store");
        held.release().await.unwrap();
    }

    #[tokio::test]
    async fn a_memory_url_with_more_than_a_name_is_refused() {
        for url in ["memory://host/path", "memory:a?b=c", &format!("memory:{}", "x".repeat(65))] {
            let error = tenure::connect(url).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}");
            assert!(error.message().contains("memory:"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_unknown_scheme_is_told_the_known_ones() {
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
        assert!(error.message().contains("feature `redis`") && !error.message().contains("s3cret"), "{error}");
    }
}

#[cfg(not(feature = "memory"))]
#[tokio::test]
async fn memory_left_out_names_the_feature() {
    let error = tenure::connect("memory:").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("feature `memory`"), "{error}");
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
