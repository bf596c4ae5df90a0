//! Judges principals: nobody may be two of them, and secrets are read from their files here.

use super::Findings;
use super::backends::secret;
use super::routes::exists;
use crate::access::{Config, Hashed, Scopes, check_scope, is_alike};
use crate::config::Sections;
use crate::config::substitute::read_trimmed;
use crate::ingest;
use crate::mistake::Mistake;
use crate::origin::Protocol;
use crate::units::{Address, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) fn judge(sections: &mut Sections, findings: &mut Findings) {
    findings.names("principals", sections.principals.keys());
    let Sections { principals, listeners, .. } = &mut *sections;
    let listeners = || listeners.iter().filter_map(|(name, it)| Some((&**name, it.as_ref()?)));
    for (name, section) in principals {
        let Some(config) = section else { continue };
        let key = format!("principals.{name}");
        secrets(&key, config, findings);
        names(&key, config, findings);
        hawk(&key, config, findings);
        scopes(&key, config, has_routes_of_tasks(name, config, listeners()), findings);
        shape(&key, config, findings);
        quota(&key, config, findings);
        known(&key, config, findings);
    }
    listeners_exist(sections, findings);
    certificates_are_asked_for(sections, findings);
    differ(sections, findings);
    everybody_is_heard(sections, findings);
}

fn secrets(key: &str, config: &mut Config, findings: &mut Findings) {
    if let Some(path) = &config.tokens_file {
        match tokens(path) {
            Ok(tokens) => config.tokens.extend(tokens),
            Err(message) => findings.wrong(format!("{key}.tokens_file"), message),
        }
    }
    for (i, user) in config.basic.iter_mut().enumerate() {
        let key = format!("{key}.basic[{i}]");
        let file = user.password_file.clone();
        let hash = |text: String| Hashed::of(text.as_bytes());
        secret(&format!("{key}.password"), &mut user.password, file.as_ref(), hash, findings);
        if user.password.is_none() && file.is_none() {
            let hint = "`password_file` names a file that has it";
            findings.mistakes.push(Mistake::new(&key, "there is no `password`").hint(hint));
        }
        if user.username.contains(':') {
            findings.wrong(format!("{key}.username"), "HTTP knows no user with a `:` in its name");
        }
    }
}

fn names(key: &str, config: &Config, findings: &mut Findings) {
    for (i, name) in config.mtls.iter().enumerate() {
        let key = format!("{key}.mtls[{i}]");
        findings.wrong_unless(!name.is_empty(), key, "a name is not empty");
    }
}

fn hawk(key: &str, config: &mut Config, findings: &mut Findings) {
    let mut ids = BTreeSet::new();
    for (i, one) in config.hawk.credentials.iter_mut().enumerate() {
        let key = format!("{key}.hawk.credentials[{i}]");
        if !ids.insert(one.id.clone()) {
            let message = format!("there is a key `{}` already", one.id);
            findings.mistakes.push(Mistake::new(&key, message).hint("an id has one key"));
        }
        let file = one.key_file.clone();
        secret(&format!("{key}.key"), &mut one.key, file.as_ref(), Secret::new, findings);
        if one.key.is_none() && file.is_none() {
            let hint = "`key_file` names a file that has it";
            findings.mistakes.push(Mistake::new(&key, "there is no `key`").hint(hint));
        }
        let is_id = !one.id.is_empty() && !one.id.contains('"');
        findings.wrong_unless(is_id, format!("{key}.id"), "it is empty, or has a quote in it");
    }
    let Some(url) = &config.hawk.root_url else { return };
    let is_root = reqwest::Url::parse(url).is_ok_and(|url| {
        let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
        let is_bare = url.username().is_empty() && url.password().is_none();
        is_web && is_bare && url.query().is_none() && url.fragment().is_none()
    });
    if !is_root {
        let mistake =
            Mistake::new(format!("{key}.hawk.root_url"), "it is not the root of a Taskcluster");
        findings.mistakes.push(mistake.hint("for example \"https://tc.example.com\""));
    }
}

/// One a line; blank ones, and what begins with `#`, are none.
fn tokens(path: &Path) -> Result<Vec<Hashed>, String> {
    let text = read_trimmed(path)?;
    let mut tokens = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            let (path, what) = (path.display(), "visible ASCII without blanks");
            return Err(format!("{path}: line {number} is no token, which is made of {what}"));
        }
        tokens.push(Hashed::of(line.as_bytes()));
    }
    match tokens.is_empty() {
        true => Err(format!("{} has no tokens", path.display())),
        false => Ok(tokens),
    }
}

/// Whether it may write what the routes of finished tasks name: it has a listener of them, and no scopes
/// that would limit that.
pub(super) fn has_routes_of_tasks<'a>(
    name: &str,
    config: &Config,
    mut listeners: impl Iterator<Item = (&'a str, &'a ingest::Config)>,
) -> bool {
    let is_own = |listener: &str, it: &ingest::Config| {
        it.principal.as_deref() == Some(name) || config.listeners.iter().any(|own| own == listener)
    };
    config.scopes.is_empty()
        && listeners.any(|(listener, it)| it.protocol == Protocol::Pulse && is_own(listener, it))
}

fn scopes(key: &str, config: &Config, by_routes: bool, findings: &mut Findings) {
    let key = format!("{key}.scopes");
    for (i, scope) in config.scopes.iter().enumerate() {
        if let Err(trouble) = check_scope(scope) {
            let mistake = Mistake::new(format!("{key}[{i}]"), trouble.message);
            findings.mistakes.push(mistake.hint(trouble.hint));
        }
    }
    // What Taskcluster vouches for brings its own scopes.
    let by_service = config.hawk.root_url.is_some() && config.scopes.is_empty();
    if Scopes::new(&config.scopes).are_empty() && !by_service && !by_routes {
        let message = "no scope is about series, so it may write nothing; one that may write all has \
                       \"stats:put-points:*\"";
        findings.odd(key, message);
    }
}

fn shape(key: &str, config: &Config, findings: &mut Findings) {
    if config.prefix.chars().any(char::is_control) {
        findings.wrong(format!("{key}.prefix"), "a name has no control characters");
    }
    let tags = &config.tags;
    let keys = (tags.set.keys().map(|tag| (tag, format!("{key}.tags.set.{tag}"))))
        .chain(numbered(&tags.drop, format!("{key}.tags.drop")))
        .chain(numbered(&tags.reserved, format!("{key}.tags.reserved")));
    for (tag, at) in keys {
        // A key that is nothing but marks could be any other such key at some backend.
        let is_key = tag.bytes().any(|byte| byte.is_ascii_alphanumeric());
        let is_key = is_key && tag.bytes().all(|byte| byte.is_ascii_graphic());
        findings.wrong_unless(is_key, at, "a tag key is visible ASCII with a letter or a digit");
    }
    for (tag, value) in &tags.set {
        let is_value = !value.is_empty() && !value.chars().any(char::is_control);
        let message = "a tag has a value, without control characters";
        findings.wrong_unless(is_value, format!("{key}.tags.set.{tag}"), message);
    }
    for (tag, at) in numbered(&tags.drop, format!("{key}.tags.drop")) {
        let is = |other: &String| is_alike(tag, other);
        if tags.reserved.iter().any(is) {
            findings.odd(
                at,
                format!("`{tag}` is reserved: a point that has it is denied, not changed"),
            );
        } else if tags.set.keys().any(is) {
            findings.odd(at, format!("`{tag}` is set, whatever a client says"));
        }
    }
}

fn quota(key: &str, config: &Config, findings: &mut Findings) {
    let quota = config.quota;
    let mut positive = |name: &str, is_some: bool| {
        let message = "it must be more than zero; one that may write nothing has no scopes";
        findings.wrong_unless(is_some, format!("{key}.quota.{name}"), message);
    };
    positive("points_per_second", quota.points_per_second != Some(0));
    positive("burst", quota.burst != Some(0));
    positive("series", quota.series != Some(0));
    positive("new_series_per_hour", quota.new_series_per_hour != Some(0));
    positive("body", quota.body.is_none_or(|size| size.0 > 0));
    if quota.burst.is_some() && quota.points_per_second.is_none() {
        let message = "it has no effect without `points_per_second`";
        findings.odd(format!("{key}.quota.burst"), message);
    }
}

fn numbered(list: &[String], key: String) -> impl Iterator<Item = (&String, String)> {
    list.iter().enumerate().map(move |(i, item)| (item, format!("{key}[{i}]")))
}

/// How it can be known at all.
fn known(key: &str, config: &Config, findings: &mut Findings) {
    for (i, peer) in config.unix.iter().enumerate() {
        let message = "it asks for neither `uid` nor `gid`, and would be everybody";
        findings.wrong_unless(peer.conditions() > 0, format!("{key}.unix[{i}]"), message);
    }
    if !config.listeners.is_empty() && !config.networks.is_empty() {
        let message = "either is enough: what comes by one of `listeners` from elsewhere, and what \
                       comes from here by another listener";
        findings.odd(format!("{key}.networks"), message);
    }
}

fn listeners_exist(sections: &Sections, findings: &mut Findings) {
    for (name, config) in &sections.principals {
        let listeners = config.iter().flat_map(|config| config.listeners.iter().enumerate());
        for (i, listener) in listeners {
            let key = format!("principals.{name}.listeners[{i}]");
            exists(&key, "listener", listener, &sections.listeners, findings);
        }
    }
    for (name, listener) in &sections.listeners {
        let Some(principal) = listener.as_ref().and_then(|it| it.principal.as_ref()) else {
            continue;
        };
        let key = format!("listeners.{name}.principal");
        exists(&key, "principal", principal, &sections.principals, findings);
    }
}

/// Nobody shows a certificate who is not asked for one.
fn certificates_are_asked_for(sections: &Sections, findings: &mut Findings) {
    let asks = |listener: &ingest::Config| {
        listener.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    };
    // One that could not be read may ask.
    if sections.listeners.values().any(|listener| listener.as_ref().is_none_or(asks)) {
        return;
    }
    for (name, config) in &sections.principals {
        if config.as_ref().is_some_and(|config| !config.mtls.is_empty()) {
            let message = "no listener has `tls` with a `client_ca`, so nobody shows a certificate";
            findings.odd(format!("principals.{name}.mtls"), message);
        }
    }
}

/// Whatever tells who somebody is belongs to one principal.
fn differ(sections: &Sections, findings: &mut Findings) {
    let mut taken = Taken::default();
    for (name, listener) in &sections.listeners {
        if let Some(principal) = listener.as_ref().and_then(|it| it.principal.as_ref()) {
            taken.listeners.insert(name.clone(), principal.clone());
        }
    }
    for (name, config) in &sections.principals {
        let Some(config) = config else { continue };
        let mut claim = Claim { name, key: format!("principals.{name}"), findings: &mut *findings };
        let listeners = config.listeners.iter().cloned();
        claim.each("listeners", listeners, &mut taken.listeners, |it| format!("listener `{it}`"));
        claim
            .each("tokens", config.tokens.iter().copied(), &mut taken.tokens, |_| TOKEN.to_owned());
        let users = config.basic.iter().map(|user| user.username.clone());
        claim.each("basic", users, &mut taken.users, |it| format!("user `{it}`"));
        claim.each("unix", config.unix.iter().copied(), &mut taken.unix, |it| it.to_string());
        let ids = config.hawk.credentials.iter().map(|one| one.id.clone());
        claim.each("hawk.credentials", ids, &mut taken.ids, |it| format!("the key `{it}`"));
        if config.hawk.root_url.is_some() {
            claim.service(&mut taken.service);
        }
        let networks = config.networks.iter().copied();
        let names = config.mtls.iter().cloned();
        claim.each("mtls", names, &mut taken.names, |it| format!("the certificate of `{it}`"));
        claim.each("networks", networks, &mut taken.networks, |it| format!("network {it}"));
    }
}

/// What belongs to whom.
#[derive(Default)]
struct Taken {
    listeners: BTreeMap<String, String>,
    tokens: BTreeMap<Hashed, String>,
    users: BTreeMap<String, String>,
    ids: BTreeMap<String, String>,
    service: Option<String>,
    names: BTreeMap<String, String>,
    unix: BTreeMap<crate::access::UnixPeer, String>,
    networks: BTreeMap<crate::access::Network, String>,
}

/// One principal, as it claims what is its own.
struct Claim<'a> {
    name: &'a str,
    key: String,
    findings: &'a mut Findings,
}

impl Claim<'_> {
    fn service(&mut self, taken: &mut Option<String>) {
        if let Some(other) = taken {
            let message = format!("principal `{other}` has one already");
            let hint = "a signature does not say which of them to ask";
            let key = format!("{}.hawk.root_url", self.key);
            self.findings.mistakes.push(Mistake::new(key, message).hint(hint));
        }
        taken.get_or_insert_with(|| self.name.to_owned());
    }

    fn each<T: Ord>(
        &mut self,
        list: &str,
        items: impl Iterator<Item = T>,
        taken: &mut BTreeMap<T, String>,
        shown: impl Fn(&T) -> String,
    ) {
        for (i, item) in items.enumerate() {
            match taken.get(&item).filter(|other| *other != self.name) {
                Some(other) => {
                    let message =
                        format!("{} belongs to principal `{other}` already", shown(&item));
                    let hint = "who sends a point must be one of them";
                    let key = format!("{}.{list}[{i}]", self.key);
                    self.findings.mistakes.push(Mistake::new(key, message).hint(hint));
                }
                None => drop(taken.insert(item, self.name.to_owned())),
            }
        }
    }
}

/// Warns of listeners whose clients have no way to show who they are.
fn everybody_is_heard(sections: &Sections, findings: &mut Findings) {
    let principals = || sections.principals.values().flatten();
    if sections.principals.is_empty() || sections.principals.values().any(Option::is_none) {
        return;
    }
    let by_network = principals().any(|principal| !principal.networks.is_empty());
    let by_certificate = principals().any(|principal| !principal.mtls.is_empty());
    let by_user = principals().any(|principal| !principal.unix.is_empty());
    let is_known_at = |bind: &str, asks_for_certificates: bool| match bind.parse() {
        Ok(Address::Unix(_)) => by_user,
        Ok(Address::Unixgram(_)) => false,
        Ok(Address::Tcp(_)) if asks_for_certificates => by_network || by_certificate,
        Ok(Address::Udp(_) | Address::Tcp(_)) | Err(_) => by_network,
    };
    for (name, listener) in &sections.listeners {
        let Some(listener) = listener else { continue };
        let is_own = listener.principal.is_some()
            || principals().any(|principal| principal.listeners.contains(name));
        match listener.protocol {
            _ if is_own => {}
            Protocol::File => findings.odd(format!("listeners.{name}.principal"), FILE_UNHEARD),
            Protocol::Pulse => findings.odd(format!("listeners.{name}.principal"), PULSE_UNHEARD),
            Protocol::Statsd => {
                let asks = listener.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
                let binds = listener.bind.iter().enumerate();
                for (i, _) in binds.filter(|(_, bind)| !is_known_at(bind, asks)) {
                    findings.odd(format!("listeners.{name}.bind[{i}]"), STATSD_UNHEARD);
                }
            }
            Protocol::Opentsdb | Protocol::Http | Protocol::Influxdb => {}
        }
    }
}

const FILE_UNHEARD: &str = "a file does not say who wrote it, and no principal has this listener: all \
                            that is read is denied";
const PULSE_UNHEARD: &str = "there are principals, and no principal has this listener: all that tasks \
                             leave behind is denied";
const STATSD_UNHEARD: &str = "statsd carries no credentials, and no principal has this listener: all \
                              that comes here is denied";

const TOKEN: &str = "the token";

#[cfg(test)]
mod tests {
    use super::super::tests::{plan_of, refused, warned};

    fn with(principals: &str) -> String {
        format!(
            "[backends.b]\nkind = 'blackhole'\n[[routes]]\nto = ['b']\n\
             [listeners.api]\nprotocol = 'http'\nbind = ['tcp://h:1']\n\
             [listeners.statsd]\nprotocol = 'statsd'\nbind = ['udp://h:2']\n{principals}"
        )
    }

    const HAWK: &str = "hawk.credentials = [{ id = 'k', key = 'S3CR3T' }]\n\
                        hawk.root_url = 'https://tc.example.com'\n";
    const ALL: &str = "scopes = ['stats:put-points:*']\n";

    #[test]
    fn nobody_is_two_principals() {
        refused(
            &with(&format!(
                "[principals.a]\n{ALL}listeners = ['statsd']\ntokens = ['S3CR3T']\n\
                 basic = [{{ username = 'u', password = 'x' }}]\nunix = [{{ uid = 1 }}]\n\
                 networks = ['10.0.0.0/8']\n{HAWK}\
                 [principals.b]\n{ALL}listeners = ['statsd']\ntokens = ['other', 'S3CR3T']\n\
                 basic = [{{ username = 'u', password = 'y' }}]\nunix = [{{ uid = 1 }}]\n\
                 networks = ['10.0.0.0/8']\n{HAWK}"
            )),
            &[
                "principals.b.listeners[0]: listener `statsd` belongs to principal `a` already",
                "principals.b.tokens[1]: the token belongs to principal `a` already",
                "principals.b.basic[0]: user `u` belongs to principal `a` already",
                "principals.b.unix[0]: uid 1 belongs to principal `a` already",
                "principals.b.networks[0]: network 10.0.0.0/8 belongs to principal `a` already",
                "principals.b.hawk.credentials[0]: the key `k` belongs to principal `a` already",
                "principals.b.hawk.root_url: principal `a` has one already",
            ],
        );
        refused(
            &with(&format!(
                "principal = 'a'\n[principals.a]\n{ALL}[principals.b]\n{ALL}listeners = ['statsd']\n"
            )),
            &["principals.b.listeners[0]: listener `statsd` belongs to principal `a` already"],
        );
        let same = with(&format!("principal = 'a'\n[principals.a]\n{ALL}listeners = ['statsd']\n"));
        assert!(plan_of(&same).is_ok(), "said twice, and the same");
    }

    #[test]
    fn names_must_exist() {
        refused(
            &with(&format!(
                "principal = 'ab'\n[[routes]]\nto = []\nmatch.principal = 'abc'\n\
                 [principals.abd]\n{ALL}listeners = ['stats']\n"
            )),
            &[
                "listeners.statsd.principal: there is no principal `ab` (did you mean `abd`?)",
                "routes[1].match.principal: there is no principal `abc` (did you mean `abd`?)",
                "principals.abd.listeners[0]: there is no listener `stats` (did you mean `statsd`?)",
            ],
        );
        refused(&with(&format!("[principals.Task]\n{ALL}")), &["`Task` cannot be a name"]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (keys, says) in [
            (
                "scopes = ['a:**', 'a:*:b', 'stats:put-points:*']",
                &[
                    "scopes[0]: `a:**` ends with more than one `*` (one stands",
                    "scopes[1]: `a:*:b`",
                ][..],
            ),
            (
                "networks = ['10.0.0.1/8']",
                &["networks[0]: `10.0.0.1/8` has bits beyond its first 8"],
            ),
            (
                "networks = ['::ffff:10.0.0.0/104']",
                &["networks[0]: `::ffff:10.0.0.0/104` is a network of IPv4"],
            ),
            (
                "hawk.credentials = [{ id = 'k', key = 'a' }, { id = 'k', key = 'b' }]",
                &["hawk.credentials[1]: there is a key `k` already"],
            ),
            ("unix = [{}]", &["unix[0]: it asks for neither"]),
            ("basic = [{ username = 'u' }]", &["basic[0]: there is no `password`"]),
            ("basic = [{ username = 'u:', password = 'S3CR3T' }]", &["no user with a `:`"]),
            ("tokens = ['']", &["tokens[0]: a secret is empty (was a variable not set?)"]),
            ("tokens_file = '/nowhere'", &["tokens_file: /nowhere cannot be read"]),
            ("prefix = \"a\\n\"", &["prefix: a name has no control"]),
            ("tags = { reserved = ['--'] }", &["tags.reserved[0]: a tag key is visible ASCII"]),
            ("tags = { set = { a = '' } }", &["tags.set.a: a tag has a value"]),
            (
                "quota = { series = 0, body = '0B' }",
                &["quota.series: it must", "quota.body: it must"],
            ),
            ("quota = { point = 1 }", &["unknown key `point`"]),
            ("hawk.credentials = [{ id = 'a' }]", &["hawk.credentials[0]: there is no `key`"]),
            ("hawk.credentials = [{ id = 'a', key = '' }]", &["credentials[0].key: it is empty"]),
            ("mtls = ['']", &["mtls[0]: a name is not empty"]),
            ("hawk.root_url = 'tc.example.com'", &["hawk.root_url: it is not the root"]),
            ("hawk.root_url = 'https://u:S3CR3T@h'", &["hawk.root_url: it is not the root"]),
            ("scope = ['*']", &["unknown key `scope` (did you mean `scopes`?)"]),
        ] {
            let all = if keys.starts_with("scopes") { "" } else { ALL };
            let text = format!("[principals.a]\nlisteners = ['statsd']\n{keys}\n{all}");
            refused(&with(&text), says);
        }
        refused(&with("[principals]\n"), &["principals: there are none, so nobody could write"]);
    }

    #[test]
    fn what_is_probably_not_meant() {
        for (text, says) in [
            (format!("[principals.a]\n{ALL}listeners = ['statsd']\n"), &[][..]),
            (
                format!("[principals.a]\n{ALL}tokens = ['t']\n"),
                &["listeners.statsd.bind[0]: statsd carries no credentials"],
            ),
            (format!("[principals.a]\n{ALL}networks = ['::1']\n"), &[]),
            (
                format!(
                    "[listeners.f]\nprotocol = 'file'\npaths = ['/a']\n\
                     [principals.a]\n{ALL}networks = ['::1']\n"
                ),
                &["listeners.f.principal: a file does not say who wrote it"],
            ),
            (
                format!(
                    "[listeners.f]\nprotocol = 'file'\npaths = ['/a']\n\
                     [principals.a]\n{ALL}networks = ['::1']\nlisteners = ['f']\n"
                ),
                &["networks: either is enough"],
            ),
            ("[principals.a]\nlisteners = ['statsd']\n".to_owned(), &["it may write nothing"]),
            (
                format!("[principals.a]\n{ALL}mtls = ['w']\nlisteners = ['statsd']\n"),
                &["mtls: no listener has `tls` with a `client_ca`"],
            ),
            (
                format!("[principals.a]\n{ALL}networks = ['::1']\nlisteners = ['statsd']\n"),
                &["networks: either is enough"],
            ),
            (
                format!(
                    "[principals.a]\n{ALL}listeners = ['statsd']\n\
                     tags = {{ reserved = ['r'], set = {{ s = '1' }}, drop = ['r', 's'] }}\n"
                ),
                &["drop[0]: `r` is reserved", "drop[1]: `s` is set"],
            ),
        ] {
            warned(&with(&text), says);
        }
    }

    #[test]
    fn tokens_are_read_from_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let text = with(&format!(
            "[principals.a]\n{ALL}listeners = ['statsd']\ntokens = ['three']\ntokens_file = '{}'\n",
            path.display()
        ));
        let counted = |content: &str| {
            std::fs::write(&path, content).unwrap();
            plan_of(&text).map(|planned| planned.plan.principals["a"].tokens.len())
        };
        assert_eq!(counted("one\n\n# two, of old\n  two\r\n"), Ok(3));
        let problem = counted("one\nS3CR3T two\n").unwrap_err().concat();
        assert!(problem.contains("line 2 is no token") && !problem.contains("S3CR3T"), "{problem}");
        assert!(counted("# none\n").unwrap_err().concat().contains("has no tokens"));
    }
}
