//! Which requests are answered, and the headers of all responses.
//!
//! Other users of the machine and web pages in the same browser can reach a port of 127.0.0.1:
//!
//! - the token in the address is secret, new at every start and required by every request;
//! - the `Host` must be this server: with DNS rebinding, a web page reaches the port under its own
//!   name, and the browser treats it as the same origin;
//! - the `Origin`, which browsers add to requests from scripts and forms, must be this server.

use hyper::http::request::Parts;
use hyper::http::{HeaderMap, HeaderName, HeaderValue, header};
use hyper::{Method, StatusCode};

use crate::{Result, TrainError};

const TOKEN_BYTES: usize = 16;

/// Content security policy of the page. Plots have inline styles; scripts are files.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
                           connect-src 'self'; img-src data:; frame-src 'self'; base-uri 'none'; \
                           form-action 'none'; frame-ancestors 'none'";

/// Content security policy of attention pages and bench reports, which have inline scripts: an opaque
/// origin, so that they cannot send requests to the server.
const DOCUMENT_POLICY: &str = "sandbox allow-scripts; default-src 'none'; \
                               script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                               img-src data:; base-uri 'none'; form-action 'none'; \
                               frame-ancestors 'self'";

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }
}

/// Checks requests.
#[derive(Debug)]
pub(super) struct Guard {
    token: String,
    /// The names of this server.
    hosts: [String; 2],
    port: u16,
}

impl Guard {
    pub(super) fn new(port: u16) -> Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| {
            TrainError::Refused(format!("cannot get random bytes from the system: {error}"))
        })?;
        let token = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self::with_token(token, port))
    }

    fn with_token(token: String, port: u16) -> Self {
        let host = |name: &str| match port {
            // Browsers omit it.
            80 => name.to_owned(),
            port => format!("{name}:{port}"),
        };
        Self {
            token,
            hosts: ["127.0.0.1", "localhost"].map(host),
            port,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/{}/", self.hosts[0], self.token)
    }

    /// The path after the token, if the request may be answered.
    pub(super) fn check<'a>(&self, request: &'a Parts) -> Result<&'a str, Refusal> {
        self.check_host(request)?;
        self.check_origin(&request.headers)?;
        let path = self.check_token(request.uri.path())?;
        check_method(request)?;
        Ok(path)
    }

    fn check_host(&self, request: &Parts) -> Result<(), Refusal> {
        let is_own = |host: &[u8]| self.hosts.iter().any(|own| own.as_bytes() == host);
        let mut hosts = request.headers.get_all(header::HOST).iter();
        let is_valid = match (hosts.next(), hosts.next()) {
            (Some(host), None) => is_own(host.as_bytes()),
            _ => false,
        };
        // `GET http://name/path`, as for a proxy.
        let authority = request.uri.authority();
        if is_valid && authority.is_none_or(|it| is_own(it.as_str().as_bytes())) {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            format!(
                "the Host of the request is not {}\n  help: open the address that `zoo serve` \
                 printed; through ssh, forward the same port: ssh -L {port}:127.0.0.1:{port} HOST",
                self.hosts.join(" or "),
                port = self.port
            ),
        ))
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let is_own = |origin: &HeaderValue| {
            let origin = origin.as_bytes().strip_prefix(b"http://");
            origin.is_some_and(|host| self.hosts.iter().any(|own| own.as_bytes() == host))
        };
        if headers.get_all(header::ORIGIN).iter().all(is_own) {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "requests from other web pages are refused (Origin)",
        ))
    }

    fn check_token<'a>(&self, path: &'a str) -> Result<&'a str, Refusal> {
        let parts = path.strip_prefix('/').and_then(|path| path.split_once('/'));
        let (token, rest) = parts.unwrap_or_default();
        if is_equal(token.as_bytes(), self.token.as_bytes()) {
            return Ok(rest);
        }
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "the address has no valid token\n  help: open the address that `zoo serve` printed when \
             it started; it changes with every start",
        ))
    }
}

/// GET, or POST with JSON, which scripts of other origins cannot send without a preflight request.
fn check_method(request: &Parts) -> Result<(), Refusal> {
    if request.method == Method::GET {
        return Ok(());
    }
    if request.method != Method::POST {
        return Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{} is not supported", request.method),
        ));
    }
    let content_type = request.headers.get(header::CONTENT_TYPE);
    if content_type.is_some_and(|it| it == "application/json") {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "expected Content-Type: application/json",
    ))
}

/// Compares in a time that does not depend on the bytes.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b));
    a.len() == b.len() && difference == 0
}

/// What a response contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Page,
    Style,
    Script,
    Json,
    JsonLines,
    /// A page of its own: attention weights or a bench report.
    Document,
    Text,
}

impl Content {
    pub(super) fn headers(self) -> Vec<(HeaderName, &'static str)> {
        let (content_type, policy) = match self {
            Self::Page => ("text/html; charset=utf-8", PAGE_POLICY),
            Self::Style => ("text/css; charset=utf-8", PAGE_POLICY),
            Self::Script => ("text/javascript; charset=utf-8", PAGE_POLICY),
            Self::Json => ("application/json", PAGE_POLICY),
            Self::JsonLines => ("application/x-ndjson", PAGE_POLICY),
            Self::Document => ("text/html; charset=utf-8", DOCUMENT_POLICY),
            Self::Text => ("text/plain; charset=utf-8", PAGE_POLICY),
        };
        vec![
            (header::CONTENT_TYPE, content_type),
            (header::CONTENT_SECURITY_POLICY, policy),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            // The token is in the address.
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-store"),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                "same-origin",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    const HOST: &str = "127.0.0.1:8460";

    fn check(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<String, u16> {
        let guard = Guard::with_token("secret".to_owned(), 8460);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let path = guard.check(&parts).map(ToOwned::to_owned);
        path.map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn host_must_be_this_server() {
        for host in [HOST, "localhost:8460"] {
            let path = check("GET", "/secret/api/runs", &[("host", host)]);
            assert_eq!(path, Ok("api/runs".to_owned()), "{host}");
        }
        // The name of a web page that resolves to 127.0.0.1, other ports, other spellings.
        for host in [
            "rebound.example:8460",
            "127.0.0.1:8461",
            "127.0.0.1",
            "127.0.0.1:8460.example",
            "localhost:8460@example",
            "",
        ] {
            assert_eq!(
                check("GET", "/secret/", &[("host", host)]),
                Err(403),
                "{host}"
            );
        }
        assert_eq!(check("GET", "/secret/", &[]), Err(403));
        let twice = [("host", HOST), ("host", "rebound.example:8460")];
        assert_eq!(check("GET", "/secret/", &twice), Err(403));
        let absolute = check("GET", "http://rebound.example/secret/", &[("host", HOST)]);
        assert_eq!(absolute, Err(403));
    }

    #[test]
    fn origin_must_be_this_server() {
        let post = |origin: &str| {
            let headers = [
                ("host", HOST),
                ("origin", origin),
                ("content-type", "application/json"),
            ];
            check("POST", "/secret/api/infer", &headers)
        };
        assert!(post("http://127.0.0.1:8460").is_ok());
        assert!(post("http://localhost:8460").is_ok());
        // Also pages of other local servers, and documents with an opaque origin.
        for origin in [
            "https://example.com",
            "http://127.0.0.1:8888",
            "https://127.0.0.1:8460",
            "http://127.0.0.1:8460.example",
            "null",
            "",
        ] {
            assert_eq!(post(origin), Err(403), "{origin}");
        }
        let get = [("host", HOST), ("origin", "https://example.com")];
        assert_eq!(check("GET", "/secret/", &get), Err(403));
    }

    #[test]
    fn token_is_required() {
        for path in [
            "/",
            "/secret",
            "/api/runs",
            "/Secret/",
            "/secrets/",
            "/secre/",
            "//",
            "*",
        ] {
            assert_eq!(check("GET", path, &[("host", HOST)]), Err(403), "{path}");
        }
        assert_eq!(
            check("GET", "/secret/", &[("host", HOST)]),
            Ok(String::new())
        );
        let [one, other] = [1, 1].map(|port| Guard::new(port).unwrap().token);
        assert_eq!(one.len(), 2 * TOKEN_BYTES);
        assert_ne!(one, other);
    }

    #[test]
    fn forms_and_other_methods_are_refused() {
        let post = |content_type: &str| {
            let headers = [("host", HOST), ("content-type", content_type)];
            check("POST", "/secret/api/infer", &headers)
        };
        assert!(post("application/json").is_ok());
        // What a form or a script of another origin can send without a preflight request.
        for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
            assert_eq!(post(content_type), Err(415));
        }
        assert_eq!(
            check("POST", "/secret/api/infer", &[("host", HOST)]),
            Err(415)
        );
        for method in ["PUT", "DELETE", "OPTIONS", "TRACE"] {
            assert_eq!(check(method, "/secret/", &[("host", HOST)]), Err(405));
        }
    }
}
