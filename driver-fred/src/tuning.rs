//! Settings that replace defaults of the client library that are unfit for locks.
//!
//! | default of `fred` 10 | effect on locks | instead |
//! |---|---|---|
//! | no reconnection | a restart of the server ends the client for good | each connection is its own client; the link above replaces it |
//! | commands wait for ever | a stalled server holds up every caller | the link gives each request its time |
//! | three attempts a command | after a lost reply, the server executes twice | one attempt, set on each command, for given clients; and a client that never reconnects cannot repeat a command |
//! | silent connections are kept | a half-open connection is never replaced | the link tries a doubtful connection with a ping |
//! | `TCP_NODELAY` unset | small frames wait for earlier replies | set |
//! | an ended client queues new commands, and does not answer | a request of that moment hangs | it ends with its client (`src/dialer.rs`) |
//! | 32 messages are kept | a burst silently loses wake-ups | 1024, and a loss counts as a gap: every waiter asks |

use fred::types::RespVersion;
use fred::types::config::{
    Config, ConnectionConfig, PerformanceConfig, ReconnectPolicy, Server, ServerConfig, TcpConfig, UnresponsiveConfig,
};
use tenure_redis_support::{Address, Endpoint, ExecError, Protocol};

/// How many messages the library keeps for a reader that is behind.
const MESSAGES: usize = 1024;

/// Everything that a client of the library is made from.
pub(crate) struct Tuning {
    pub(crate) config: Config,
    pub(crate) performance: PerformanceConfig,
    pub(crate) connection: ConnectionConfig,
    pub(crate) reconnect: Option<ReconnectPolicy>,
}

/// The endpoint in the library's terms.
pub(crate) fn tuning(endpoint: &Endpoint) -> Result<Tuning, ExecError> {
    let server = match &endpoint.address {
        Address::Tcp { host, port } => ServerConfig::Centralized { server: Server::new(host.clone(), *port) },
        Address::Unix(path) => ServerConfig::Unix { path: path.clone() },
    };
    let database = match endpoint.database {
        0 => None,
        number => Some(u8::try_from(number).map_err(|_| ExecError::Unsupported {
            message: format!("fred reaches the databases up to 255, not {number}"),
        })?),
    };
    let config = Config {
        server,
        username: endpoint.login.username.clone(),
        password: endpoint.login.password.clone(),
        version: match endpoint.protocol {
            Protocol::Resp2 => RespVersion::RESP2,
            _ => RespVersion::RESP3,
        },
        database,
        fail_fast: true,
        ..Config::default()
    };
    let performance = PerformanceConfig { broadcast_channel_capacity: MESSAGES, ..PerformanceConfig::default() };
    let connection = ConnectionConfig {
        connection_timeout: endpoint.timeout,
        internal_command_timeout: endpoint.timeout,
        max_command_attempts: 1,
        unresponsive: UnresponsiveConfig { max_timeout: None, ..UnresponsiveConfig::default() },
        tcp: TcpConfig { nodelay: Some(true), ..TcpConfig::default() },
        ..ConnectionConfig::default()
    };
    let config = encrypted(config, endpoint)?;
    Ok(Tuning { config, performance, connection, reconnect: None })
}

#[cfg(feature = "tls")]
fn encrypted(mut config: Config, endpoint: &Endpoint) -> Result<Config, ExecError> {
    use fred::types::config::{TlsConfig, TlsConnector};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let Some(tls) = &endpoint.tls else { return Ok(config) };
    // A provider that is there already stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bad = |what: &str, error: &dyn std::fmt::Display| ExecError::NotSent {
        message: format!("cannot use the {what}: {error}"),
        source: None,
    };
    let chain = |what, pem: &[u8]| -> Result<Vec<CertificateDer<'static>>, ExecError> {
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| bad(what, &error))
    };
    let connector = match (&tls.authorities, &tls.identity) {
        (None, None) => TlsConnector::default_rustls().map_err(|error| bad("certificates of the system", &error))?,
        (None, Some(_)) => {
            let message = "fred needs the authorities (ca) in addition to the client's own certificate".into();
            return Err(ExecError::Unsupported { message });
        }
        (Some(authorities), identity) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in chain("authorities", authorities)? {
                roots.add(certificate).map_err(|error| bad("authorities", &error))?;
            }
            let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
            match identity {
                None => builder.with_no_client_auth(),
                Some(identity) => {
                    let key =
                        PrivateKeyDer::from_pem_slice(&identity.key).map_err(|error| bad("client's key", &error))?;
                    builder
                        .with_client_auth_cert(chain("client's certificate", &identity.certificates)?, key)
                        .map_err(|error| bad("client's certificate", &error))?
                }
            }
            .into()
        }
    };
    config.tls = Some(TlsConfig::from(connector));
    Ok(config)
}

#[cfg(not(feature = "tls"))]
fn encrypted(config: Config, endpoint: &Endpoint) -> Result<Config, ExecError> {
    match endpoint.tls {
        None => Ok(config),
        Some(_) => Err(ExecError::Unsupported {
            message: "TLS needs the feature \"tls\" of tenure (of tenure-fred, where that is used by itself)".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use tenure_redis_support::RedisConfig;

    use super::*;

    fn tuned(config: RedisConfig) -> Result<Tuning, ExecError> {
        tuning(&config.endpoints().remove(0))
    }

    #[test]
    fn the_librarys_defaults_are_overridden() {
        let tuning = tuned(RedisConfig::tcp("h", 1)).unwrap();
        assert_eq!(tuning.connection.max_command_attempts, 1);
        assert_eq!(tuning.connection.tcp.nodelay, Some(true));
        assert_eq!(tuning.performance.broadcast_channel_capacity, MESSAGES);
        assert!(tuning.reconnect.is_none(), "a client that reconnects by itself could repeat a command");
        assert_eq!(tuning.config.version, RespVersion::RESP3);
    }

    #[test]
    fn a_database_out_of_reach_is_refused() {
        assert!(tuned(RedisConfig::tcp("h", 1).database(255)).is_ok());
        assert!(matches!(tuned(RedisConfig::tcp("h", 1).database(256)), Err(ExecError::Unsupported { .. })));
    }
}
