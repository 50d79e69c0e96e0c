//! `etcd://user:password@host:port,host/?prefix=…`

use std::time::Duration;

use tenure_core::Result;

use crate::config::{EtcdConfig, invalid};

pub(crate) fn parse(url: &str) -> Result<EtcdConfig> {
    // A URL may hold a password: no message repeats it.
    let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("an etcd URL begins with etcd:// or etcds://"))?;
    let encrypted = match scheme {
        "etcd" => false,
        "etcds" => true,
        _ => return Err(invalid("an etcd URL begins with etcd:// or etcds://")),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.is_empty() {
        return Err(invalid("an etcd URL has no path; say ?prefix=… for a prefix"));
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    let mut config = EtcdConfig::new(hosts.split(','))?;
    if let Some(user) = user {
        let (name, password) =
            user.split_once(':').ok_or_else(|| invalid("credentials in an etcd URL are user:password"))?;
        config = config.user(decode(name)?, decode(password)?);
    }
    let mut tls = TlsFiles::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value)?;
        config = match key {
            "prefix" => config.prefix(value)?,
            "max_waiters" => config.max_waiters(number(key, &value)?)?,
            "max_depth" => config.max_depth(number(key, &value)?)?,
            "clock_error_ms" => config.clock_error(Duration::from_millis(number(key, &value)?))?,
            "max_dead_letters" => config.max_dead_letters(number(key, &value)?)?,
            "connect_timeout_ms" => config.connect_timeout(Duration::from_millis(number(key, &value)?)),
            "ca" | "cert" | "key" | "domain" if encrypted => {
                tls.set(key, value);
                config
            }
            "ca" | "cert" | "key" | "domain" => {
                return Err(invalid(format!("the parameter \"{key}\" needs an etcds:// URL")));
            }
            _ => return Err(invalid(format!("an etcd URL has no parameter \"{}\"", key.escape_debug()))),
        };
    }
    if encrypted { tls.apply(config) } else { Ok(config) }
}

#[derive(Default)]
struct TlsFiles {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    domain: Option<String>,
}

impl TlsFiles {
    fn set(&mut self, key: &str, value: String) {
        let place = match key {
            "ca" => &mut self.ca,
            "cert" => &mut self.cert,
            "key" => &mut self.key,
            _ => &mut self.domain,
        };
        *place = Some(value);
    }

    #[cfg(feature = "tls")]
    fn apply(self, config: EtcdConfig) -> Result<EtcdConfig> {
        let read = |path: &String| {
            std::fs::read(path).map_err(|error| invalid(format!("cannot read {path}: {error}")).with_source(error))
        };
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            (None, None) => None,
            _ => return Err(invalid("an etcds URL has both of the parameters \"cert\" and \"key\", or neither")),
        };
        let ca = self.ca.as_ref().map(read).transpose()?;
        Ok(config.tls(crate::EtcdTls { ca, identity, domain: self.domain }))
    }

    #[cfg(not(feature = "tls"))]
    fn apply(self, _: EtcdConfig) -> Result<EtcdConfig> {
        let text = "etcds:// needs the feature `tls`";
        Err(tenure_core::Error::new(tenure_core::ErrorKind::Unsupported, text))
    }
}

fn number<N: std::str::FromStr>(key: &str, value: &str) -> Result<N> {
    value.parse().map_err(|_| invalid(format!("\"{key}\" of an etcd URL is a number")))
}

fn decode(text: &str) -> Result<String> {
    let bad = || invalid("an etcd URL holds a percent sign without two hexadecimal digits, or no UTF-8");
    String::from_utf8(crate::keys::decode(text.as_bytes()).ok_or_else(bad)?).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_everything() {
        let config = parse("etcd://u%40x:p%3Aw@a,b:1,[::1]:2/?prefix=x/y&max_waiters=7&max_depth=9").unwrap();
        assert_eq!(config.endpoints, ["a:2379", "b:1", "[::1]:2"]);
        assert_eq!(config.user, Some(("u@x".into(), "p:w".into())));
        assert_eq!((config.prefix.as_str(), config.max_waiters, config.max_depth), ("x/y", 7, 9));
        assert!(!format!("{config:?}").contains("p:w"));
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
            "etcd://a/?unknown=1",
            "etcd://a/?max_waiters=0",
            "etcd://a/?max_waiters=x",
            "etcd://a/?ca=x",
            "etcd://a/?clock_error_ms=3600001",
            "etcd://a/?max_dead_letters=0",
            "etcd://a b",
            "etcds://a/?cert=x",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(!error.to_string().is_empty(), "{bad}");
        }
        let secret = parse("etcd://u:hunter2@a/?x=1").unwrap_err();
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
