//! Judges listeners of finished tasks: the broker, the Taskcluster, and secrets, which are read from
//! their files here.

use super::Findings;
use super::backends::secret;
use crate::config::Sections;
use crate::ingest::{Broker, Tasks, check_address};
use crate::mistake::Mistake;
use crate::origin::Protocol;
use crate::tls::{Client, ClientSettings};
use crate::units::Secret;
use std::net::IpAddr;

pub(super) fn judge(sections: &mut Sections, findings: &mut Findings) {
    let mut queues = Vec::new();
    for (name, listener) in &mut sections.listeners {
        let Some(listener) = listener else { continue };
        let key = format!("listeners.{name}");
        if listener.protocol != Protocol::Pulse {
            only_for_pulse(&key, listener.broker.is_some(), "broker", findings);
            only_for_pulse(&key, listener.tasks.is_some(), "tasks", findings);
            continue;
        }
        if !listener.bind.is_empty() {
            let message = "nobody comes to it; `broker` says where messages come from";
            findings.wrong(format!("{key}.bind"), message);
        }
        if listener.tls.is_some() {
            let message = "this block is for those who come to us";
            let hint = "`broker.tls` and `tasks.tls` say whom to trust";
            findings.mistakes.push(Mistake::new(format!("{key}.tls"), message).hint(hint));
        }
        if let Some(broker) = &mut listener.broker {
            judge_broker(&format!("{key}.broker"), broker, findings);
            let place = broker.place();
            if queues.contains(&place) {
                let message = "another listener has this queue: each gets some of its messages";
                findings.odd(format!("{key}.broker.queue"), message);
            }
            queues.push(place);
        }
        if let Some(tasks) = &mut listener.tasks {
            judge_tasks(&format!("{key}.tasks"), tasks, findings);
        }
    }
}

fn only_for_pulse(key: &str, is_set: bool, name: &str, findings: &mut Findings) {
    let message = format!("`{name}` is for protocol = \"pulse\"");
    findings.wrong_unless(!is_set, format!("{key}.{name}"), message);
}

fn judge_broker(key: &str, broker: &mut Broker, findings: &mut Findings) {
    let is_secure = address(key, &broker.url, findings);
    let file = broker.password_file.clone();
    let name = format!("{key}.password");
    secret(&name, &mut broker.password, file.as_ref(), Secret::new, findings);
    if broker.password.is_none() && file.is_none() {
        let hint = "`password_file` names a file that has it";
        findings.mistakes.push(Mistake::new(name, "there is no `password`").hint(hint));
    }
    for (name, text) in [("username", &broker.username), ("queue", &broker.queue)] {
        let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let message = "it is part of the queue's name, so it has to be visible ASCII";
        findings.wrong_unless(is_word, format!("{key}.{name}"), message);
    }
    let is_short = broker.queue_name().len() <= SHORT;
    findings.wrong_unless(is_short, format!("{key}.queue"), TOO_LONG);
    findings.wrong_unless(
        broker.prefetch > 0,
        format!("{key}.prefetch"),
        "it must be more than zero",
    );
    let some = !broker.exchanges.is_empty();
    findings.wrong_unless(some, format!("{key}.exchanges"), "the list is empty");
    for (i, exchange) in broker.exchanges.iter().enumerate() {
        let key = format!("{key}.exchanges[{i}]");
        findings.wrong_unless(!exchange.is_empty(), &key, "the name is empty");
        findings.wrong_unless(exchange.len() <= SHORT, key, TOO_LONG);
    }
    if broker.tls.is_some() && !is_secure {
        let message = "this broker is not spoken to by TLS";
        let hint = "write amqps:// in its URL";
        findings.mistakes.push(Mistake::new(format!("{key}.tls"), message).hint(hint));
    }
    certificates(key, broker.tls.as_ref(), findings);
}

/// Whether the broker is spoken to by TLS. A URL is in logs and on pages, so nothing secret may be in
/// it; and it is not repeated here.
fn address(key: &str, text: &str, findings: &mut Findings) -> bool {
    let key = format!("{key}.url");
    let example = "for example \"amqps://pulse.example.com\"";
    if let Err(message) = check_address(text) {
        findings.mistakes.push(Mistake::new(key, message).hint(example));
        return false;
    }
    let Ok(url) = reqwest::Url::parse(text) else { return false };
    if !url.username().is_empty() || url.password().is_some() {
        let message = "credentials do not belong into the URL";
        let hint = "use `username` and `password_file`";
        findings.mistakes.push(Mistake::new(&key, message).hint(hint));
    }
    if url.query().is_some() || url.fragment().is_some() {
        findings.wrong(&key, "the URL must end before any `?` or `#`");
    }
    let is_secure = url.scheme() == "amqps";
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    if !is_secure && !is_here {
        findings.odd(key, "the password travels as it is; amqps:// encrypts it");
    }
    is_secure
}

fn judge_tasks(key: &str, tasks: &mut Tasks, findings: &mut Findings) {
    let url = reqwest::Url::parse(&tasks.root_url).ok();
    let is_root = url.is_some_and(|url| {
        let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
        let is_bare = url.username().is_empty() && url.password().is_none();
        is_web && is_bare && url.query().is_none() && url.fragment().is_none()
    });
    if !is_root {
        let message = "this is not the root URL of a Taskcluster";
        let hint = "for example \"https://tc.example.com\"";
        findings.mistakes.push(Mistake::new(format!("{key}.root_url"), message).hint(hint));
    }
    credentials(key, tasks, findings);
    let route = &tasks.route;
    let is_route = !route.is_empty()
        && !route.starts_with('.')
        && !route.ends_with('.')
        && route.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'#'));
    let message = "it has to be one or more words of visible ASCII with dots between, as a task's \
                   routes have them; the series follows it";
    findings.wrong_unless(is_route, format!("{key}.route"), message);
    findings.wrong_unless(route.len() <= SHORT / 2, format!("{key}.route"), TOO_LONG);
    let some = !tasks.artifacts.is_empty();
    findings.wrong_unless(some, format!("{key}.artifacts"), "the list is empty");
    for (i, name) in tasks.artifacts.iter().enumerate() {
        let message = "an artifact's name begins with no slash, and has no part `..`";
        let is_name = !name.is_empty()
            && !name.starts_with('/')
            && !name.split('/').any(|part| matches!(part, "." | ".."));
        findings.wrong_unless(is_name, format!("{key}.artifacts[{i}]"), message);
    }
    let holds = !tasks.retry.first.0.is_zero();
    findings.wrong_unless(holds, format!("{key}.retry.first"), "it must be more than zero");
    let grows = tasks.retry.first <= tasks.retry.max;
    let message = "it must not be shorter than `first`";
    findings.wrong_unless(grows, format!("{key}.retry.max"), message);
    certificates(key, tasks.tls.as_ref(), findings);
}

fn credentials(key: &str, tasks: &mut Tasks, findings: &mut Findings) {
    let file = tasks.access_token_file.clone();
    let name = format!("{key}.access_token");
    secret(&name, &mut tasks.access_token, file.as_ref(), Secret::new, findings);
    let has_token = tasks.access_token.is_some() || file.is_some();
    match &tasks.client_id {
        Some(id) => {
            let is_id =
                !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
            let message = "it is empty, or holds a blank or a quote";
            findings.wrong_unless(is_id, format!("{key}.client_id"), message);
            if !has_token {
                let hint = "`access_token_file` names a file that has it";
                findings.mistakes.push(Mistake::new(name, "there is no `access_token`").hint(hint));
            }
        }
        None => {
            let message = "there is no `client_id` whose it is";
            findings.wrong_unless(!has_token, format!("{key}.client_id"), message);
        }
    }
}

fn certificates(key: &str, settings: Option<&ClientSettings>, findings: &mut Findings) {
    if let Some(settings) = settings {
        findings.files(key, Client::load(settings).map(|(_, oddities)| oddities));
    }
}

/// What AMQP calls a short string.
const SHORT: usize = 255;
const TOO_LONG: &str = "it is longer than AMQP allows";

#[cfg(test)]
mod tests {
    use super::super::tests::{plan_of, refused, warned};

    const ROUTES: &str = "[backends.b]\nkind = \"blackhole\"\n[[routes]]\nto = [\"b\"]\n";
    const BROKER: &str = "url = 'amqps://pulse.example.com', username = 'u', password = 'p'";
    const TASKS: &str = "root_url = 'https://tc.example.com'";

    fn listener(broker: &str, tasks: &str, more: &str) -> String {
        format!(
            "{ROUTES}[listeners.l]\nprotocol = 'pulse'\nbroker = {{ {broker} }}\ntasks = {{ {tasks} }}\n{more}\n"
        )
    }

    #[test]
    fn a_broker_and_a_root_url_are_enough() {
        let planned = plan_of(&listener(BROKER, TASKS, "")).unwrap();
        assert_eq!(planned.warnings.lines(), Vec::<String>::new());
        let shown = planned.plan.to_string();
        assert!(shown.contains("amqps://pulse.example.com/queue/u/statistics"), "{shown}");
        let all = "root_url = 'http://127.0.0.1:1/x', client_id = 'a/b', access_token = 't', \
                   route = 'a.b', artifacts = ['public/x.csv'], references = true, \
                   retry = { first = '1s', max = '5s' }";
        let broker = format!("{BROKER}, queue = 'q', exchanges = ['e'], prefetch = 1");
        let more = "idempotency = { window = '7d' }\nlimits = { body = '64MiB' }";
        assert!(plan_of(&listener(&broker, all, more)).is_ok());
    }

    #[test]
    fn a_principal_without_scopes_may_write_what_routes_name() {
        let routes = "may        the series of finished tasks' routes, and those under them\n";
        let [nothing, odd] = ["may        nothing\n", "it may write nothing"];
        for (more, says, is_odd) in [
            ("principal = 'p'\n[principals.p]\n", routes, false),
            ("[principals.p]\nlisteners = ['l']\n", routes, false),
            ("principal = 'p'\n[principals.p]\nscopes = ['mistyped']\n", "mistyped\n", true),
            ("[principals.p]\ntokens = ['t']\n", nothing, true),
        ] {
            let planned = plan_of(&listener(BROKER, TASKS, more)).unwrap();
            let shown = planned.plan.to_string();
            assert!(shown.contains(says), "{more}: {shown}");
            let warnings = planned.warnings.lines().concat();
            assert_eq!(warnings.contains(odd), is_odd, "{more}: {warnings}");
        }
        let both = "principal = 'p'\n[principals.p]\nhawk.root_url = 'https://tc.example.com'\n";
        let shown = plan_of(&listener(BROKER, TASKS, both)).unwrap().plan.to_string();
        assert!(shown.contains("may        what it is vouched for; the series of"), "{shown}");
    }

    #[test]
    fn what_is_missing_is_told() {
        let bare = format!("{ROUTES}[listeners.l]\nprotocol = 'pulse'\n");
        refused(&bare, &["`broker` is missing", "`tasks` is missing"]);
        refused(
            &listener("url = 'amqps://h', username = 'u'", TASKS, ""),
            &["broker.password: there is no `password` (`password_file` names a file"],
        );
        let no_secret = "url = 'amqps://h', username = 'u', password = ''";
        let tasks = "root_url = 'https://h', client_id = 'c', access_token = ''";
        let empty = ["broker.password: it is empty", "tasks.access_token: it is empty"];
        refused(&listener(no_secret, tasks, ""), &empty);
    }

    #[test]
    fn what_a_listener_of_finished_tasks_cannot_have() {
        for (broker, tasks, more, says) in [
            (BROKER, TASKS, "bind = ['tcp://h:1']", "bind: nobody comes to it"),
            (BROKER, TASKS, "ack = 'queued'", "`ack` is for protocols that answer"),
            (BROKER, TASKS, "series = 'x'", "`series` is for protocol = \"file\""),
            ("url = 'https://h', username = 'u', password = 'p'", TASKS, "", "not an AMQP URL"),
            ("url = 'h', username = 'u', password = 'p'", TASKS, "", "this is not a URL"),
            (
                "url = 'amqps://u:S3CR3T@h', username = 'u', password = 'p'",
                TASKS,
                "",
                "credentials",
            ),
            (
                "url = 'amqps://h?heartbeat=1', username = 'u', password = 'p'",
                TASKS,
                "",
                "before any",
            ),
            (
                "url = 'amqps://h', username = 'a b', password = 'p'",
                TASKS,
                "",
                "username: it is part",
            ),
            (
                "url = 'amqps://h', username = 'u', password = 'p', prefetch = 0",
                TASKS,
                "",
                "prefetch",
            ),
            (
                "url = 'amqps://h', username = 'u', password = 'p', exchanges = []",
                TASKS,
                "",
                "exchanges",
            ),
            (
                "url = 'amqp://127.0.0.1', username = 'u', password = 'p', tls = {}",
                TASKS,
                "",
                "amqps://",
            ),
            (BROKER, "root_url = 'tc.example.com'", "", "root_url: this is not the root URL"),
            (BROKER, "root_url = 'https://u:p@h'", "", "root_url: this is not the root URL"),
            (BROKER, "root_url = 'https://h', client_id = 'x'", "", "there is no `access_token`"),
            (BROKER, "root_url = 'https://h', access_token = 'x'", "", "there is no `client_id`"),
            (BROKER, "root_url = 'https://h', route = 'a.#'", "", "route: it has to be"),
            (BROKER, "root_url = 'https://h', route = 'a.'", "", "route: it has to be"),
            (BROKER, "root_url = 'https://h', artifacts = []", "", "artifacts: the list is empty"),
            (BROKER, "root_url = 'https://h', artifacts = ['a/../b']", "", "artifacts[0]: an"),
            (
                BROKER,
                "root_url = 'https://h', retry = { max = '1s' }",
                "",
                "retry.max: it must not",
            ),
            (BROKER, "root_url = 'https://h', tls = { ca = '/none' }", "", "tasks.tls.ca"),
        ] {
            refused(&listener(broker, tasks, more), &[says]);
        }
        let http = format!(
            "{ROUTES}[listeners.l]\nprotocol = 'http'\nbind = ['tcp://h:1']\ntasks = {{ {TASKS} }}\n"
        );
        refused(&http, &["`tasks` is for protocol = \"pulse\""]);
    }

    #[test]
    fn what_is_probably_not_meant() {
        let open = "url = 'amqp://pulse.example.com', username = 'u', password = 'p'";
        warned(&listener(open, TASKS, ""), &["the password travels as it is"]);
        let second = format!(
            "[listeners.m]\nprotocol = 'pulse'\nbroker = {{ {BROKER} }}\ntasks = {{ {TASKS} }}\n"
        );
        warned(&listener(BROKER, TASKS, &second), &["another listener has this queue"]);
        let principals = "[principals.p]\ntokens = ['t']\nscopes = ['*']\n";
        warned(&listener(BROKER, TASKS, principals), &["no principal has this listener"]);
    }
}
