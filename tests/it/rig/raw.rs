//! HTTP without a gRPC library in between: to send what no library would, and to see headers.

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A message as gRPC frames it.
pub(crate) fn frame(message: &impl Message) -> Bytes {
    frame_bytes(&message.encode_to_vec())
}

/// Any bytes as gRPC frames a message.
pub(crate) fn frame_bytes(bytes: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(bytes.len()).unwrap());
    frame.put_slice(bytes);
    frame.freeze()
}

/// A gRPC call by hand: version and content type are there, `headers` come on top or replace.
pub(crate) async fn grpc(
    server: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Response<Bytes> {
    let mut request = Request::post(format!("http://{server}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("a2a-version", "1.0")
        .body(body)
        .unwrap();
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    over_http2(TcpStream::connect(server).await.unwrap(), request).await
}

/// A GET over HTTP/1.1.
pub(crate) async fn get(
    server: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Response<Bytes> {
    let mut request =
        Request::get(path).header("host", server.to_string()).body(Bytes::new()).unwrap();
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    over_http1(TcpStream::connect(server).await.unwrap(), request).await
}

/// One request over HTTP/2 on a connection that is there already.
pub(crate) async fn over_http2(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Bytes>,
) -> Response<Bytes> {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request.map(Full::new)).await.unwrap();
    let whole = collect(response).await;
    connection.abort();
    whole
}

/// One request over HTTP/1.1 on a connection that is there already.
pub(crate) async fn over_http1(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Bytes>,
) -> Response<Bytes> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.unwrap();
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request.map(Full::new)).await.unwrap();
    let whole = collect(response).await;
    connection.abort();
    whole
}

/// Opens a gRPC call and waits for what it ends with: its trailers.
pub(crate) async fn grpc_trailers(
    server: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> http::HeaderMap {
    let io = TokioIo::new(TcpStream::connect(server).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::post(format!("http://{server}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("a2a-version", "1.0");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body)).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let whole = response.into_body().collect().await.unwrap();
    connection.abort();
    whole.trailers().cloned().unwrap()
}

async fn collect(response: Response<hyper::body::Incoming>) -> Response<Bytes> {
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

/// A request over HTTP/1.1 with any method, and nothing but these headers.
pub(crate) async fn http(
    server: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response<Bytes> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", server.to_string())
        .body(body.into())
        .unwrap();
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().append(name, value.parse().unwrap());
    }
    over_http1(TcpStream::connect(server).await.unwrap(), request).await
}
