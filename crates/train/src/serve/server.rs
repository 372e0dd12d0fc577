//! Connections: limits on sizes and times, and the checks before a request is answered.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::http::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::mpsc::UnboundedReceiver;

use super::api::{Api, Reply};
use super::security::{Content, Guard, Refusal};

/// Maximum bytes of a request line with its headers, and of a body.
const MAX_HEADERS: usize = 32 * 1024;
const MAX_BODY: usize = 256 * 1024;

/// Maximum time for the headers, and for a body.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Answers connections until the listener fails.
pub(super) async fn serve(listener: TcpListener, guard: Guard, api: Arc<Api>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let guard = Arc::new(guard);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // The client is gone, or all file descriptors are in use.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (guard, api) = (guard.clone(), api.clone());
        let service = service_fn(move |request| {
            let (guard, api) = (guard.clone(), api.clone());
            async move { Ok::<_, Infallible>(respond(&guard, api, request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(MAX_WAIT)
            .max_buf_size(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service);
        // An error is the end of a connection.
        tokio::spawn(async move { drop(connection.await) });
    }
}

type ResponseBody = BoxBody<Bytes, Infallible>;

async fn respond(
    guard: &Guard,
    api: Arc<Api>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let reply = match answer(guard, api, request).await {
        Ok(reply) => reply,
        Err(Refusal { status, message }) => {
            let text = format!("error: {message}\n");
            return response(status, Content::Text, Full::from(text).boxed());
        }
    };
    match reply {
        Reply::Full(content, bytes) => response(StatusCode::OK, content, Full::from(bytes).boxed()),
        Reply::Lines(lines) => response(StatusCode::OK, Content::JsonLines, Lines(lines).boxed()),
    }
}

async fn answer(
    guard: &Guard,
    api: Arc<Api>,
    request: Request<Incoming>,
) -> Result<Reply, Refusal> {
    let (parts, body) = request.into_parts();
    let path = guard.check(&parts)?.to_owned();
    let too_large = || {
        let reason = format!("a request has at most {} KiB", MAX_BODY / 1024);
        Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason))
    };
    // The declared length.
    if body.size_hint().lower() > MAX_BODY as u64 {
        return too_large();
    }
    let body = tokio::time::timeout(MAX_WAIT, Limited::new(body, MAX_BODY).collect());
    let body = match body.await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return too_large(),
        Ok(Err(_)) | Err(_) => {
            let reason = "the request is incomplete";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, reason));
        }
    };
    // Files are read in another thread, so that no connection waits for them.
    let answered = tokio::task::spawn_blocking(move || api.answer(&parts.method, &path, &body));
    answered.await.unwrap_or_else(|_| {
        let reason = "internal error: the terminal of `zoo serve` has the details";
        Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, reason))
    })
}

fn response(status: StatusCode, content: Content, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in content.headers() {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Lines that are sent as they come. Dropping the body ends the sender.
struct Lines(UnboundedReceiver<Bytes>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let line = self.0.poll_recv(context);
        line.map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}
