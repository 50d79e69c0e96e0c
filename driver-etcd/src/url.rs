//! `etcd://user:password@host:port,host/?prefix=…`

use tenure_core::driver::BackendUrl;
use tenure_core::{FenceFloor, Result};

use crate::config::{DEFAULT_PORT, EtcdConfig, endpoint, invalid};

/// The parameters of TLS.
const TLS: [&str; 4] = ["ca", "cert", "key", "domain"];

impl EtcdConfig {
    /// Reads a URL after other readers have removed their parameters.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](tenure_core::ErrorKind::InvalidArgument) names the problem, including an unknown
    /// parameter; it repeats no part of a password.
    /// [`ErrorKind::Unsupported`](tenure_core::ErrorKind::Unsupported) for TLS without the feature `tls`.
    pub fn read(url: BackendUrl) -> Result<Self> {
        read(url)
    }
}

fn read(mut url: BackendUrl) -> Result<EtcdConfig> {
    let encrypted = match url.scheme() {
        "etcd" => false,
        "etcds" => true,
        _ => return Err(invalid("an etcd URL begins with etcd:// or etcds://")),
    };
    if !url.path().is_empty() {
        return Err(invalid("an etcd URL has no path; say ?prefix=… for a prefix"));
    }
    let mut config = EtcdConfig::new(url.hosts(DEFAULT_PORT)?.into_iter().map(endpoint))?;
    match (url.user(), url.password()) {
        (Some(user), Some(password)) => config = config.user(user, password),
        (None, None) => {}
        _ => return Err(invalid("credentials in an etcd URL are user:password")),
    }
    if let Some(prefix) = url.text("prefix") {
        config = config.prefix(prefix)?;
    }
    if let Some(most) = url.number("max_waiters")? {
        config = config.max_waiters(most)?;
    }
    if let Some(most) = url.number("max_depth")? {
        config = config.max_depth(most)?;
    }
    if let Some(floor) = FenceFloor::read(&mut url)? {
        config = config.fence_floor(floor);
    }
    if let Some(most) = url.millis("clock_error_ms")? {
        config = config.clock_error(most)?;
    }
    if let Some(most) = url.number("max_dead_letters")? {
        config = config.max_dead_letters(most)?;
    }
    if let Some(limit) = url.millis("connect_timeout_ms")? {
        config = config.connect_timeout(limit);
    }
    if encrypted {
        config = encrypt(config, &mut url)?;
    } else if let Some(name) = TLS.into_iter().find(|name| url.text(name).is_some()) {
        return Err(invalid(format!("{name} is for TLS, which etcds:// asks for")));
    }
    url.finish()?;
    Ok(config)
}

#[cfg(feature = "tls")]
fn encrypt(config: EtcdConfig, url: &mut BackendUrl) -> Result<EtcdConfig> {
    let [ca, cert, key] = [url.file_of("ca")?, url.file_of("cert")?, url.file_of("key")?];
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(invalid("an etcds URL has both of the parameters cert and key, or neither")),
    };
    Ok(config.tls(crate::EtcdTls { ca, identity, domain: url.text("domain") }))
}

#[cfg(not(feature = "tls"))]
fn encrypt(_: EtcdConfig, _: &mut BackendUrl) -> Result<EtcdConfig> {
    Err(tenure_core::Error::new(
        tenure_core::ErrorKind::Unsupported,
        "TLS (etcds://) needs the feature \"tls\" of tenure (of tenure-etcd, where that is used by itself)",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Members;

    fn parse(url: &str) -> Result<EtcdConfig> {
        url.parse()
    }

    #[test]
    fn urls_say_everything() {
        let config = parse("etcd://u%40x:p%3Aw@a,b:1,[::1]:2/?prefix=x/y&max_waiters=7&max_depth=9").unwrap();
        assert!(parse(&format!("etcd://a/?prefix={}", "x".repeat(128))).is_ok());
        let endpoints = ["a:2379", "b:1", "[::1]:2"].map(String::from);
        assert!(config.members == Members::Endpoints(endpoints.into()));
        assert_eq!(config.user, Some(("u@x".into(), "p:w".into())));
        assert_eq!((config.prefix.as_str(), config.max_waiters, config.max_depth), ("x/y", 7, 9));
        assert!(!format!("{config:?}").contains("p:w"));
        let config =
            parse("etcd://a/?fence_floor=54&clock_error_ms=3&max_dead_letters=4&connect_timeout_ms=5").unwrap();
        assert_eq!((config.fence_floor.get(), config.max_dead_letters), (54, 4));
        let ms = std::time::Duration::from_millis;
        assert_eq!((config.clock_error, config.connect_timeout), (ms(3), ms(5)));
        assert_eq!(parse("ETCD://a").unwrap(), parse("etcd://a").unwrap());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for bad in [
            "redis://a",
            "etcd:a",
            "etcd://",
            "etcd://a:b",
            "etcd://a/x",
            "etcd://user@a",
            "etcd://a/?prefix=",
            "etcd://a/?prefix=%zz",
            &format!("etcd://a/?prefix={}", "x".repeat(129)),
            "etcd://a/?unknown=1",
            "etcd://a/?max_waiters=0",
            "etcd://a/?max_waiters=x",
            "etcd://a/?ca=x",
            "etcd://a/?clock_error_ms=3600001",
            "etcd://a/?max_dead_letters=0",
            "etcd://a/?fence_floor=9223372036854775807",
            "etcd://a b",
            "etcds://a/?cert=x",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(!error.to_string().is_empty(), "{bad}");
        }
        for bad in
            ["etcd://root:hunter2@a/?x=1", "etcd://root:hunter2", "etcd://root:hun?ter2@a", "etcd://root:x@a:hunter2"]
        {
            let secret = parse(bad).unwrap_err();
            let reported = format!("{secret:?} {secret}");
            assert!(
                !["hunter2", "hun", "ter2", "root"].iter().any(|part| reported.contains(part)),
                "{bad}: {reported}"
            );
        }
        for name in TLS {
            let error = parse(&format!("etcd://a/?{name}=x")).unwrap_err().to_string();
            assert!(error.contains(&format!("{name} is for TLS")), "{error}");
        }
        let unknown = parse("etcd://a/?prefx=1").unwrap_err().to_string();
        assert!(unknown.contains("\"prefx\"; known are ") && unknown.contains("prefix"), "{unknown}");
    }
}
