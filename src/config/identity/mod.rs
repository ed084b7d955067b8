//! The settings of identity: whose credentials are taken.

pub(super) mod tables;

use std::collections::BTreeSet;
use std::time::Duration;

use http::header::HeaderName;

use crate::auth::{
    self, Algorithm, ApiKey, ApiKeys, Auth, Certificates, ClaimNames, Class, Holder, Issuer, Jwks,
    Jwt, Mode, Needed, Peer, Rules, Source, Timing, tenants,
};
use crate::config::check::{Problems, read};
use crate::config::file::{self, File, JwtIssuer, Scopes};
use crate::config::{AuthMode, Config, duration, duration_text, name_of};

impl Config {
    /// The modes of `--auth`, with what the settings file says of each.
    pub(super) fn read_auth(&self, file: &File, problems: &mut Problems) -> Auth {
        for (n, mode) in self.auth.iter().enumerate() {
            if self.auth.iter().take(n).any(|other| other == mode) {
                problems.add(format!("--auth: {} stands there twice", name_of(*mode)));
            }
        }
        if self.is_open() && self.auth.len() > 1 {
            problems.add("--auth: none goes with no other mode, since it lets everybody in");
        }
        self.check_unused(file, problems);
        if self.auth.contains(&AuthMode::Mtls) && self.tls_client_ca.is_none() {
            problems.add("--auth mtls: needs --tls-client-ca, whose certificates are believed");
        }
        let mut modes = Vec::new();
        for mode in &self.auth {
            let name = name_of(*mode);
            let read = match mode {
                AuthMode::None => continue,
                AuthMode::ApiKey => api_keys(&file.api_keys, problems).map(Mode::ApiKeys),
                AuthMode::Jwt => jwt(&file.jwt, problems).map(Mode::Jwt),
                AuthMode::Gateway => self.gateway(file).map(Mode::Gateway),
                AuthMode::Mtls => certificates(&file.certificates).map(Mode::Certificates),
            };
            modes
                .extend(problems.take(read.map_err(|problem| format!("--auth {name}: {problem}"))));
        }
        Auth::of(modes).needing(self.needed(file, problems))
    }

    fn needed(&self, file: &File, problems: &mut Problems) -> Needed {
        let Scopes { read, send, cancel, card, push } = &file.scopes;
        let of = |class| match class {
            Class::Read => read,
            Class::Send => send,
            Class::Cancel => cancel,
            Class::Card => card,
            Class::Push => push,
        };
        let all = Class::ALL.into_iter().filter_map(|class| Some((class, of(class).clone()?)));
        let needed: Needed = all.collect();
        for (class, scope) in &needed {
            if let Err(problem) = check_scope(scope) {
                problems.add(format!("scopes.{}: {problem}", class.name()));
            }
        }
        if self.is_open() && !needed.is_empty() {
            problems.add("scopes: with --auth none nobody has any");
        }
        needed
    }

    /// What the file has for modes that are not asked.
    fn check_unused(&self, file: &File, problems: &mut Problems) {
        use AuthMode::{ApiKey, Gateway, Jwt, Mtls};
        for (modes, table, there) in [
            (&[ApiKey][..], "API keys", !file.api_keys.is_empty()),
            (&[Jwt, Gateway], "[[jwt]]", !file.jwt.is_empty()),
            (&[Gateway], "[gateway]", file.gateway.is_some()),
            (&[Mtls, Gateway], "[[certificates]]", !file.certificates.is_empty()),
        ] {
            if there && !modes.iter().any(|mode| self.auth.contains(mode)) {
                let names: Vec<_> = modes.iter().map(|mode| name_of(*mode)).collect();
                let names = names.join(" or ");
                problems.add(format!(
                    "--auth: the settings file has {table} that nobody would be asked for; add \
                     {names} or take them out"
                ));
            }
        }
    }

    fn gateway(&self, file: &File) -> Result<auth::Gateway, String> {
        let table = file.gateway.as_ref().ok_or("needs [gateway] in the settings file")?;
        let peers: Vec<Peer> =
            table.peers.iter().map(|peer| peer.parse()).collect::<Result<_, _>>()?;
        if peers.is_empty() {
            return Err("gateway.peers: name at least one: nobody else is believed".to_owned());
        }
        let by_certificate = peers.iter().any(|peer| matches!(peer, Peer::Certificate(_)));
        if by_certificate && self.tls_client_ca.is_none() {
            return Err("gateway.peers: certificates need --tls-client-ca".to_owned());
        }
        let payload = match table.payload_header.as_deref() {
            Some("") => None,
            named => Some(named.unwrap_or("x-jwt-payload")),
        };
        let payload = payload.map(|name| HeaderName::try_from(name).map_err(|_e| name)).transpose();
        let payload = payload
            .map_err(|name| format!("gateway.payload_header: {name:?} is no name of a header"))?;
        let rules = if payload.is_some() {
            file.jwt.iter().map(of_issuer).collect::<Result<Vec<_>, _>>()?
        } else {
            Vec::new()
        };
        if payload.is_some() && rules.is_empty() {
            return Err("needs [[jwt]], which says what claims must be; or payload_header = \"\""
                .to_owned());
        }
        if payload.is_none() && !table.forwarded_client_certs {
            return Err("gateway: believes in no header at all".to_owned());
        }
        let listed = table.forwarded_client_certs.then(|| certificates(&file.certificates));
        Ok(auth::Gateway { peers, payload, rules, certificates: listed.transpose()? })
    }
}

fn of_issuer(issuer: &JwtIssuer) -> Result<Rules, String> {
    rules(issuer).map_err(|problem| format!("jwt: the issuer {:?}: {problem}", issuer.issuer))
}

fn certificates(listed: &[file::Certificate]) -> Result<Certificates, String> {
    let holder = |one: &file::Certificate| {
        if one.name.is_empty() {
            return Err("certificates: a name must not be empty".to_owned());
        }
        let named = |problem| format!("certificates: {:?}: {problem}", one.name);
        let tenants = tenants(&one.tenants).map_err(named)?;
        Ok(Holder::new(&one.name, tenants, scopes(&one.scopes).map_err(named)?))
    };
    listed.iter().map(holder).collect::<Result<_, _>>().map(Certificates::new)
}

fn api_keys(listed: &[file::ApiKey], problems: &mut Problems) -> Result<ApiKeys, String> {
    let keys: Vec<_> = listed.iter().filter_map(|key| problems.take(api_key(key))).collect();
    if keys.len() < listed.len() {
        return Err("some [[api_keys]] cannot be used".to_owned());
    }
    ApiKeys::new(keys)
}

fn api_key(key: &file::ApiKey) -> Result<ApiKey, String> {
    let file::ApiKey { name, sha256, tenants, scopes: listed } = key;
    let bytes = hex::decode(sha256).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let wrong = || format!("api_keys: the sha256 of {name:?} must be 64 hex digits");
    let hash = bytes.ok_or_else(wrong)?;
    let scopes =
        scopes(listed).map_err(|problem| format!("api_keys: key {name}: scopes: {problem}"))?;
    let key = ApiKey::new(name, hash, tenants).map_err(|problem| format!("api_keys: {problem}"))?;
    Ok(key.with_scopes(scopes))
}

fn scopes(listed: &[String]) -> Result<BTreeSet<String>, String> {
    listed.iter().try_for_each(|scope| check_scope(scope))?;
    Ok(listed.iter().cloned().collect())
}

/// A scope as OAuth writes it (RFC 6749, 3.3).
pub(super) fn check_scope(scope: &str) -> Result<(), String> {
    let fits = |byte: u8| matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b'\\');
    let fits = (1..=256).contains(&scope.len()) && scope.bytes().all(fits);
    fits.then_some(()).ok_or_else(|| format!("{scope:?} is no scope: write letters without blanks"))
}

fn jwt(listed: &[JwtIssuer], problems: &mut Problems) -> Result<Jwt, String> {
    let one = |issuer: &JwtIssuer| {
        let read = issuer_of(issuer);
        read.map_err(|problem| format!("jwt: the issuer {:?}: {problem}", issuer.issuer))
    };
    let issuers: Vec<_> = listed.iter().filter_map(|issuer| problems.take(one(issuer))).collect();
    if issuers.len() < listed.len() {
        return Err("some [[jwt]] cannot be used".to_owned());
    }
    Jwt::new(issuers)
}

fn issuer_of(issuer: &JwtIssuer) -> Result<Issuer, String> {
    let rules = rules(issuer)?;
    let algorithms: Vec<_> = issuer
        .algorithms
        .iter()
        .map(|name| Algorithm::named(name).ok_or_else(|| unknown(name)))
        .collect::<Result<_, _>>()?;
    let algorithms = if algorithms.is_empty() { Algorithm::ALL.to_vec() } else { algorithms };
    let seconds = Duration::from_secs;
    let ms = Duration::from_millis(100);
    let usual = Timing::default();
    let day = seconds(86_400);
    let timing = Timing {
        refresh: time("refresh", issuer.refresh.as_deref(), usual.refresh, (seconds(1), day))?,
        refetch: time("refetch", issuer.refetch.as_deref(), usual.refetch, (ms, seconds(3600)))?,
        keep: time("keep", issuer.keep.as_deref(), usual.keep, (seconds(60), 30 * day))?,
    };
    let source = issuer.jwks.as_deref().ok_or("jwks: a file or a URL is needed")?;
    let source = Source::parse(source).map_err(|problem| format!("jwks: {problem}"))?;
    let keys = Jwks::new(source, algorithms, timing);
    // A file is there before the server is; a URL may come later.
    if let Source::File(path) = keys.source() {
        let set = read(path).map_err(|problem| format!("jwks: {problem}"))?;
        keys.take(&set).map_err(|problem| format!("jwks: {} {problem}", path.display()))?;
    }
    Ok(Issuer { rules, keys, discovery: issuer.discovery.clone() })
}

fn rules(issuer: &JwtIssuer) -> Result<Rules, String> {
    let name = issuer.issuer.as_str();
    // Principals are `<iss>|<sub>`, `key:<name>` and `cert:<name>`: no two callers share one.
    if name.is_empty() || name.contains('|') || name.len() > 200 {
        return Err("must have 1 to 200 bytes and no |".to_owned());
    }
    if name.starts_with("key:") || name.starts_with("cert:") {
        return Err("must not begin with key: or cert:".to_owned());
    }
    if issuer.audiences.is_empty() || issuer.audiences.iter().any(String::is_empty) {
        return Err("audiences: name at least one: tokens for others are not for here".to_owned());
    }
    let most = Duration::from_secs(600);
    let usual = Duration::from_secs(30);
    let usual_names = ClaimNames::default();
    Ok(Rules {
        issuer: name.to_owned(),
        audiences: issuer.audiences.clone(),
        leeway: time("leeway", issuer.leeway.as_deref(), usual, (Duration::ZERO, most))?,
        names: ClaimNames {
            tenants: match issuer.tenants_claim.as_deref() {
                None => usual_names.tenants,
                Some("") => None,
                Some(claim) => Some(claim.to_owned()),
            },
            scopes: issuer.scopes_claim.clone().filter(|claim| !claim.is_empty()),
        },
        tenants: tenants(&issuer.tenants)?,
    })
}

fn unknown(name: &str) -> String {
    let known: Vec<_> = Algorithm::ALL.into_iter().map(Algorithm::name).collect();
    format!("algorithms: {name:?} is none of {}", known.join(", "))
}

fn time(
    name: &str,
    text: Option<&str>,
    usual: Duration,
    (least, most): (Duration, Duration),
) -> Result<Duration, String> {
    let value = text.map_or(Ok(usual), duration).map_err(|problem| format!("{name}: {problem}"))?;
    if value < least || value > most {
        let (least, most) = (duration_text(least), duration_text(most));
        return Err(format!("{name}: must be from {least} to {most}"));
    }
    Ok(value)
}
