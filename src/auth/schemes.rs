//! How callers prove who they are, as the agent card says it (CARD-10).

use std::collections::BTreeMap;

use crate::auth::{API_KEY_HEADER, Auth, Jwt, Mode};
use crate::contract::v1::{self, security_scheme::Scheme};

impl Auth {
    /// The schemes of all modes: any one of them is enough.
    #[must_use]
    pub fn schemes(&self) -> BTreeMap<String, v1::SecurityScheme> {
        let of = |mode: &Mode| match mode {
            Mode::ApiKeys(_) => api_keys(),
            Mode::Jwt(jwt) => issuers(jwt),
            Mode::Gateway(gateway) if gateway.payload.is_some() => {
                vec![("gateway".to_owned(), bearer("A token that the gateway verifies.", "JWT"))]
            }
            // What a gateway takes certificates for is a certificate on the connection to it.
            Mode::Gateway(_) | Mode::Certificates(_) => vec![("mtls".to_owned(), certificate())],
        };
        let all = self.modes().iter().flat_map(of);
        all.map(|(name, scheme)| (name, v1::SecurityScheme { scheme: Some(scheme) })).collect()
    }
}

fn bearer(description: &str, format: &str) -> Scheme {
    Scheme::HttpAuthSecurityScheme(v1::HttpAuthSecurityScheme {
        description: description.to_owned(),
        scheme: "Bearer".to_owned(),
        bearer_format: format.to_owned(),
    })
}

fn certificate() -> Scheme {
    let description = "A client certificate on the TLS connection.".to_owned();
    Scheme::MtlsSecurityScheme(v1::MutualTlsSecurityScheme { description })
}

fn api_keys() -> Vec<(String, Scheme)> {
    let header = Scheme::ApiKeySecurityScheme(v1::ApiKeySecurityScheme {
        description: "An API key by itself.".to_owned(),
        location: "header".to_owned(),
        name: API_KEY_HEADER.as_str().to_owned(),
    });
    let bearer = bearer("An API key as a bearer token.", "");
    vec![("bearer".to_owned(), bearer), ("apiKey".to_owned(), header)]
}

/// The bearer scheme for all issuers, and another for each that describes itself.
fn issuers(jwt: &Jwt) -> Vec<(String, Scheme)> {
    let names = jwt.issuers().collect::<Vec<_>>().join(" or of ");
    let mut schemes = vec![("jwt".to_owned(), bearer(&format!("A token of {names}."), "JWT"))];
    let described =
        jwt.all().iter().filter_map(|of| Some((&of.rules.issuer, of.discovery.as_ref()?)));
    for (n, (issuer, url)) in described.enumerate() {
        let name = if n == 0 { "openid".to_owned() } else { format!("openid{}", n + 1) };
        let scheme = Scheme::OpenIdConnectSecurityScheme(v1::OpenIdConnectSecurityScheme {
            description: format!("A token of {issuer}."),
            open_id_connect_url: url.clone(),
        });
        schemes.push((name, scheme));
    }
    schemes
}
