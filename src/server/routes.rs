//! What answers on the one port.

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use crate::bindings::json::{self, Json};
use crate::bindings::{Door, grpc};
use crate::card::{JWKS_PATH, PATH};
use crate::contract::DESCRIPTOR_SET;
use crate::server::builder::StartError;
use crate::server::card::{self, Card};
use crate::server::ending::end_with;
use crate::server::health;
use crate::server::layers::{BODY_WITHIN, counted, guard, only_grpc, others, web};
use crate::server::unsent::hold;
use crate::service::Service;

/// The protocol on all its bindings, health, both versions of reflection, and the card. Only the
/// protocol asks for credentials: balancers, tools and discovery come without any. Their streams
/// end at `stop`.
pub(crate) async fn app(
    service: Service,
    door: Door,
    card: Card,
    receive_bytes_max: usize,
    stop: CancellationToken,
) -> Result<(Router, HealthReporter), StartError> {
    let metrics = service.metrics().clone();
    let (reporter, health_service) = tonic_health::server::health_reporter();
    health::tell(&reporter, false).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // From an empty router: the library's own default has a fallback, and so has ours.
    let tools = Routes::from(Router::new())
        .add_service(health_service)
        .add_service(reflection().build_v1().map_err(StartError::Contract)?)
        .add_service(reflection().build_v1alpha().map_err(StartError::Contract)?)
        .into_axum_router()
        .layer(from_fn_with_state(stop, end_with));
    let limits = json::Limits { bytes: receive_bytes_max, within: BODY_WITHIN };
    let json = Json::new(service.clone(), door.clone(), limits);
    let grpc = Routes::from(tools)
        .add_service(grpc::server(service, door, receive_bytes_max))
        .prepare()
        .into_axum_router()
        .layer(from_fn(only_grpc));
    let mut discovery = Router::new().route(PATH, get(card::answer));
    if card.has_keys() {
        discovery = discovery.route(JWKS_PATH, get(card::answer_keys));
    }
    let app = discovery
        .with_state(card)
        .merge(grpc)
        .fallback(move |request| others(json.clone(), request))
        .layer(from_fn(hold))
        .layer(from_fn(guard))
        .layer(from_fn_with_state(metrics, counted))
        .layer(from_fn(web));
    Ok((app, reporter))
}
