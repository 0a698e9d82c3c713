//! The access to the network: the proxy and the CA certificates, from the variables that other programs also use, or else
//! from the config.

use nanobot_base::error::{Exit, fail};
use nanobot_os::env::{Env, NO_PROXY_VARIABLES, PROXY_VARIABLES};
use nanobot_os::secret::{LazySecret, Secret};
use std::path::PathBuf;
use std::sync::Arc;
use ureq::Proxy;
use ureq::tls::{Certificate, RootCerts};

/// Paths of the system's root certificates. If none exists, the compiled-in ones are used.
const CERTIFICATE_PATHS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
];

/// The values of the config. Each applies if its variable is not set.
#[derive(Clone, Debug, Default)]
pub struct NetworkDefaults {
    pub proxy: Option<LazySecret>,
    /// Hosts that are reached without the proxy, in the syntax of `NO_PROXY`.
    pub no_proxy: Vec<String>,
    /// A file of CA certificates in PEM format.
    pub ca_file: Option<PathBuf>,
}

/// The proxy and the CA certificates of a run.
#[derive(Clone, Debug, Default)]
pub struct Network {
    proxy: Option<Proxy>,
    certificates: CertificateSource,
    /// Only loopback addresses may be reached.
    is_offline: bool,
}

/// The source of the CA certificates.
#[derive(Clone, Debug, Default)]
enum CertificateSource {
    /// The certificates of the system, or else the compiled-in ones.
    #[default]
    System,
    /// `SSL_CERT_FILE` or `SSL_CERT_DIR`, with the value for messages.
    Environment(String),
    /// A file that the config names.
    File(PathBuf),
}

impl Network {
    /// Resolves the variables and `defaults`.
    ///
    /// # Errors
    /// Status 78 if the proxy of `defaults` is not a valid URL. An invalid one in a variable is ignored, as other
    /// programs do.
    pub fn new(env: &Env, defaults: NetworkDefaults) -> anyhow::Result<Self> {
        let NetworkDefaults { proxy, no_proxy, ca_file } = defaults;
        let variable = |names: &[&str]| names.iter().find_map(|name| env.get(name));
        let no_proxy: Vec<String> = match variable(NO_PROXY_VARIABLES) {
            Some(list) => list.split(',').map(|host| host.trim().to_owned()).collect(),
            None => no_proxy,
        };
        let from_env = PROXY_VARIABLES
            .iter()
            .filter_map(|name| env.get(name))
            .find_map(|url| parse_proxy(url, &no_proxy));
        let proxy = match (from_env, proxy) {
            (Some(proxy), _) => Some(proxy),
            (None, Some(url)) => Some(configured_proxy(url.resolve()?, &no_proxy, "`http.proxy`")?),
            (None, None) => None,
        };
        let certificates = match (variable(&["SSL_CERT_FILE", "SSL_CERT_DIR"]), ca_file) {
            (Some(path), _) => CertificateSource::Environment(path.to_owned()),
            (None, Some(path)) => CertificateSource::File(path),
            (None, None) => CertificateSource::System,
        };
        Ok(Self { proxy, certificates, is_offline: false })
    }

    /// The same network, restricted to loopback addresses, as with `--offline`.
    pub fn offline(self) -> Self {
        Self { is_offline: true, ..self }
    }

    /// True if only loopback addresses may be reached.
    pub(super) fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// The proxy, if there is one.
    pub(super) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// The source of the CA certificates, for messages.
    pub(super) fn certificate_source(&self) -> String {
        match &self.certificates {
            CertificateSource::Environment(path) => format!("`{path}`"),
            CertificateSource::File(path) => format!("`{}`", path.display()),
            CertificateSource::System => {
                system_path().map_or_else(|| "this program".into(), |path| format!("`{path}`"))
            }
        }
    }

    /// The root certificates. Those of the system are only read for `tls`.
    pub(super) fn root_certificates(&self, tls: bool) -> RootCerts {
        let native_certs = match &self.certificates {
            CertificateSource::System if !tls || system_path().is_none() => {
                return RootCerts::WebPki;
            }
            CertificateSource::File(path) => {
                rustls_native_certs::load_certs_from_paths(Some(path), None)
            }
            // This reads the two variables itself.
            CertificateSource::Environment(_) | CertificateSource::System => {
                rustls_native_certs::load_native_certs()
            }
        };
        for error in native_certs.errors {
            log::warn!(target: "http", "{error}");
        }
        let certificates = native_certs
            .certs
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect();
        RootCerts::Specific(Arc::new(certificates))
    }
}

/// Parses the proxy URL in `setting`.
///
/// # Errors
/// Status 78 if it is not valid. The URL can contain a password, so it is not shown.
pub(super) fn configured_proxy(
    url: &Secret,
    no_proxy: &[String],
    setting: &str,
) -> anyhow::Result<Proxy> {
    parse_proxy(url.expose(), no_proxy)
        .ok_or_else(|| fail(Exit::Config, format!("{setting} is not a valid proxy URL")))
}

/// Parses a proxy URL; `None` if it is not valid.
fn parse_proxy(url: &str, no_proxy: &[String]) -> Option<Proxy> {
    let proxy = Proxy::new(url).ok()?;
    if no_proxy.is_empty() {
        return Some(proxy);
    }
    let mut builder = Proxy::builder(proxy.protocol())
        .host(proxy.host())
        .port(proxy.port())
        .resolve_target(proxy.resolve_target());
    for host in no_proxy {
        builder = builder.no_proxy(host);
    }
    if let Some(user) = proxy.username() {
        builder = builder.username(user);
    }
    if let Some(password) = proxy.password() {
        builder = builder.password(password);
    }
    builder.build().ok()
}

/// The path of the system's root certificates, if there are any.
fn system_path() -> Option<&'static str> {
    let exists = |path: &&&str| std::path::Path::new(path).exists();
    CERTIFICATE_PATHS.iter().find(exists).copied()
}

#[cfg(test)]
mod tests {
    use super::{Network, NetworkDefaults};
    use nanobot_os::env::Env;
    use nanobot_os::secret::LazySecret;

    #[test]
    fn a_variable_overrides_the_config() {
        let check = |variables: &[(&str, &str)], host: Option<&str>, direct: &str| {
            let env: Env = variables.iter().copied().collect();
            let defaults = NetworkDefaults {
                proxy: Some(LazySecret::new("http://user:p%40ss@config:3128")),
                no_proxy: vec![".config.example".into()],
                ca_file: None,
            };
            let network = Network::new(&env, defaults).unwrap();
            assert_eq!(network.proxy().map(ureq::Proxy::host), host);
            let direct = format!("https://{direct}/").parse().unwrap();
            let proxy = network.proxy().unwrap();
            assert!(proxy.is_no_proxy(&direct));
            assert!(!proxy.is_no_proxy(&"https://other.example/".parse().unwrap()));
        };
        check(&[], Some("config"), "a.config.example");
        let variable = ("HTTPS_PROXY", "http://variable:1");
        check(&[variable], Some("variable"), "a.config.example");
        let list = ("no_proxy", "b.example, .c.example");
        check(&[list], Some("config"), "a.c.example");
        check(&[variable, list], Some("variable"), "b.example");
        // As other programs do, an invalid variable is ignored.
        check(&[("ALL_PROXY", "::")], Some("config"), "a.config.example");
    }

    #[test]
    fn the_password_is_kept_and_an_invalid_url_is_rejected() {
        let network = |url: &str| {
            let defaults = NetworkDefaults {
                proxy: Some(LazySecret::new(url)),
                no_proxy: vec!["a".into()],
                ca_file: None,
            };
            Network::new(&Env::default(), defaults)
        };
        let proxy = network("http://user:p%40ss@host:3128").unwrap();
        assert_eq!(proxy.proxy().unwrap().password(), Some("p@ss"));
        let error = network("http://user:word@").unwrap_err().to_string();
        assert_eq!(error, "`http.proxy` is not a valid proxy URL");
    }
}
