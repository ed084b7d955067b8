//! What is wrong with a card, member by member (CARD-06 to CARD-10, SIGN-10).

use std::collections::BTreeSet;

use crate::card::interfaces::{self, GRPC, HTTP_JSON, JSONRPC};
use crate::contract::v1::{self, o_auth_flows::Flow, security_scheme::Scheme};
use crate::contract::{PROTOCOL_VERSION, wkt};
use crate::domain::payload::Checker;

/// The deepest that free-form values may nest, as everywhere.
const NESTING_MAX: usize = 30;

/// Everything that is wrong, each with the path of its member in the JSON form.
#[must_use]
pub fn problems(card: &v1::AgentCard) -> Vec<String> {
    let mut check = Check::default();
    check.text("name", &card.name);
    check.text("description", &card.description);
    check.text("version", &card.version);
    check.optional("documentationUrl", card.documentation_url.as_deref());
    check.optional("iconUrl", card.icon_url.as_deref());
    if let Some(v1::AgentProvider { url, organization }) = &card.provider {
        check.text("provider.url", url);
        check.text("provider.organization", organization);
    }
    check.modes("defaultInputModes", &card.default_input_modes, true);
    check.modes("defaultOutputModes", &card.default_output_modes, true);
    check.interfaces(&card.supported_interfaces);
    check.skills(card);
    check.capabilities(card.capabilities.as_ref());
    for (name, scheme) in &card.security_schemes {
        check.scheme(&format!("securitySchemes.{name}"), scheme.scheme.as_ref());
    }
    check.requirements("securityRequirements", &card.security_requirements, card);
    check.0
}

#[derive(Default)]
struct Check(Vec<String>);

impl Check {
    fn refuse(&mut self, member: &str, problem: &str) {
        self.0.push(format!("{member}: {problem}"));
    }

    fn text(&mut self, member: &str, text: &str) {
        if text.trim().is_empty() {
            self.refuse(member, "must be set");
        } else if text.contains('\0') {
            self.refuse(member, "must not hold a NUL character");
        }
    }

    fn optional(&mut self, member: &str, text: Option<&str>) {
        if text.is_some_and(str::is_empty) {
            self.refuse(member, "must not be empty; leave it out instead");
        }
    }

    fn texts(&mut self, member: &str, texts: &[String]) {
        for (n, text) in texts.iter().enumerate() {
            self.text(&format!("{member}[{n}]"), text);
        }
    }

    fn modes(&mut self, member: &str, modes: &[String], required: bool) {
        if required && modes.is_empty() {
            self.refuse(member, "must name at least one media type, such as text/plain");
        }
        for (n, mode) in modes.iter().enumerate() {
            let essence = mode.split(';').next().unwrap_or_default().trim();
            let parts = essence.split_once('/');
            if !parts.is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty()) {
                self.refuse(&format!("{member}[{n}]"), "must be a media type, such as text/plain");
            }
        }
    }

    fn interfaces(&mut self, interfaces: &[v1::AgentInterface]) {
        if interfaces.is_empty() {
            self.refuse("supportedInterfaces", "must name at least one interface");
        }
        for (n, interface) in interfaces.iter().enumerate() {
            let v1::AgentInterface { url, protocol_binding, tenant: _, protocol_version } =
                interface;
            let member = format!("supportedInterfaces[{n}]");
            let binding = protocol_binding.as_str();
            if !matches!(binding, GRPC | JSONRPC | HTTP_JSON) && !binding.contains(':') {
                let problem = "must be GRPC, JSONRPC, HTTP+JSON, or the URI of another binding";
                self.refuse(&format!("{member}.protocolBinding"), problem);
            }
            if let Err(problem) = interfaces::check_url(binding, url) {
                self.refuse(&format!("{member}.url"), &problem);
            }
            if protocol_version != PROTOCOL_VERSION {
                let problem = format!("must be \"{PROTOCOL_VERSION}\", which is spoken here");
                self.refuse(&format!("{member}.protocolVersion"), &problem);
            }
        }
    }

    fn skills(&mut self, card: &v1::AgentCard) {
        if card.skills.is_empty() {
            self.refuse("skills", "must name at least one skill");
        }
        let mut ids = BTreeSet::new();
        for (n, skill) in card.skills.iter().enumerate() {
            let member = |name: &str| format!("skills[{n}].{name}");
            self.text(&member("id"), &skill.id);
            if !ids.insert(&skill.id) {
                self.refuse(&member("id"), "must not be the id of another skill");
            }
            self.text(&member("name"), &skill.name);
            self.text(&member("description"), &skill.description);
            if skill.tags.is_empty() {
                self.refuse(&member("tags"), "must hold at least one keyword");
            }
            self.texts(&member("tags"), &skill.tags);
            self.texts(&member("examples"), &skill.examples);
            self.modes(&member("inputModes"), &skill.input_modes, false);
            self.modes(&member("outputModes"), &skill.output_modes, false);
            let requirements = &skill.security_requirements;
            self.requirements(&member("securityRequirements"), requirements, card);
        }
    }

    fn capabilities(&mut self, capabilities: Option<&v1::AgentCapabilities>) {
        let mut uris = BTreeSet::new();
        for (n, extension) in capabilities.iter().flat_map(|of| &of.extensions).enumerate() {
            let member = format!("capabilities.extensions[{n}].uri");
            let uri = extension.uri.as_str();
            // It travels in a header, in a list with commas.
            let plain = uri.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
            if !uri.contains(':') || !plain {
                self.refuse(&member, "must be a URI, without blanks and commas");
            }
            if !uris.insert(uri) {
                self.refuse(&member, "must not be the URI of another extension");
            }
            if let Some(params) = &extension.params {
                self.params(&format!("capabilities.extensions[{n}].params"), params);
            }
        }
    }

    fn params(&mut self, member: &str, params: &wkt::Struct) {
        if params.fields.is_empty() {
            self.refuse(member, "must not be empty; leave it out instead");
        }
        let mut checker = Checker::new(NESTING_MAX);
        checker.metadata(member, Some(params));
        for violation in checker.finish().err().into_iter().flatten() {
            self.refuse(&violation.field, &violation.problem);
        }
    }

    fn scheme(&mut self, member: &str, scheme: Option<&Scheme>) {
        match scheme {
            None => self.refuse(member, "must hold one kind of scheme"),
            Some(Scheme::ApiKeySecurityScheme(scheme)) => {
                let member = format!("{member}.apiKeySecurityScheme");
                if !matches!(scheme.location.as_str(), "query" | "header" | "cookie") {
                    let problem = "must be query, header or cookie";
                    self.refuse(&format!("{member}.location"), problem);
                }
                self.text(&format!("{member}.name"), &scheme.name);
            }
            Some(Scheme::HttpAuthSecurityScheme(scheme)) => {
                self.text(&format!("{member}.httpAuthSecurityScheme.scheme"), &scheme.scheme);
            }
            Some(Scheme::Oauth2SecurityScheme(scheme)) => {
                let member = format!("{member}.oauth2SecurityScheme.flows");
                self.flow(&member, scheme.flows.as_ref().and_then(|flows| flows.flow.as_ref()));
            }
            Some(Scheme::OpenIdConnectSecurityScheme(scheme)) => {
                let member = format!("{member}.openIdConnectSecurityScheme.openIdConnectUrl");
                self.text(&member, &scheme.open_id_connect_url);
            }
            Some(Scheme::MtlsSecurityScheme(_)) => {}
        }
    }

    #[expect(deprecated, reason = "cards may name the old flows")]
    fn flow(&mut self, member: &str, flow: Option<&Flow>) {
        match flow {
            None => self.refuse(member, "must hold one flow"),
            Some(Flow::AuthorizationCode(flow)) => {
                let member = format!("{member}.authorizationCode");
                self.text(&format!("{member}.authorizationUrl"), &flow.authorization_url);
                self.text(&format!("{member}.tokenUrl"), &flow.token_url);
            }
            Some(Flow::ClientCredentials(flow)) => {
                self.text(&format!("{member}.clientCredentials.tokenUrl"), &flow.token_url);
            }
            Some(Flow::DeviceCode(flow)) => {
                let member = format!("{member}.deviceCode");
                let url = &flow.device_authorization_url;
                self.text(&format!("{member}.deviceAuthorizationUrl"), url);
                self.text(&format!("{member}.tokenUrl"), &flow.token_url);
            }
            Some(Flow::Implicit(_) | Flow::Password(_)) => {}
        }
    }

    fn requirements(
        &mut self,
        member: &str,
        requirements: &[v1::SecurityRequirement],
        card: &v1::AgentCard,
    ) {
        for (n, requirement) in requirements.iter().enumerate() {
            if requirement.schemes.is_empty() {
                self.refuse(&format!("{member}[{n}].schemes"), "must name at least one scheme");
            }
            for name in requirement.schemes.keys() {
                if !card.security_schemes.contains_key(name) {
                    let problem = "must be a name of securitySchemes";
                    self.refuse(&format!("{member}[{n}].schemes.{name}"), problem);
                }
            }
        }
    }
}
