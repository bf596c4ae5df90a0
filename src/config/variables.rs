//! Variables that look as if they were for us, and are not.
//!
//! One underscore less than it takes is easily written, and what then is not overridden is noticed
//! by nobody.

use super::SECTIONS;
use super::source::{Located, Place};
use crate::mistake::Mistake;
use std::collections::BTreeMap;

/// A warning about each of them.
pub(super) fn strange(environment: &BTreeMap<String, String>) -> Vec<Located> {
    let ours = environment.keys().filter_map(|name| Some((name, name.strip_prefix(PREFIX)?)));
    let strange = ours.filter(|(name, rest)| {
        let is_override = rest.starts_with('_');
        !is_override && !KNOWN.contains(&name.as_str()) && !is_of_a_cluster(rest)
    });
    strange.map(|(name, rest)| warning(name, rest)).collect()
}

fn warning(name: &str, rest: &str) -> Located {
    let hint = match meant(rest) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "a key is overridden by POINTSMAN__SECTION__KEY, with two underscores".to_owned(),
    };
    let mistake = Mistake::new("", "it has no effect").hint(hint);
    Located { mistake, place: Place::Environment(name.to_owned()) }
}

/// The override that was probably meant, if the section that it is about can be made out.
fn meant(rest: &str) -> Option<String> {
    let (section, keys) = SECTIONS.iter().find_map(|section| {
        let (own, keys) = rest.split_at_checked(section.len())?;
        let is_whole = keys.is_empty() || keys.starts_with('_');
        (is_whole && own.eq_ignore_ascii_case(section)).then_some((*section, keys))
    })?;
    let keys = keys.trim_start_matches('_').to_ascii_uppercase();
    let keys = match (section, keys.as_str()) {
        (_, "") => String::new(),
        // A name, and a key of what has that name.
        ("listeners" | "principals" | "backends", _) if !keys.contains("__") => {
            format!("__{}", keys.replacen('_', "__", 1))
        }
        _ => format!("__{keys}"),
    };
    Some(format!("{PREFIX}_{}{keys}", section.to_ascii_uppercase()))
}

/// Kubernetes tells every container where its services are, in variables named after these.
fn is_of_a_cluster(rest: &str) -> bool {
    let is_port = rest == "PORT" || rest.starts_with("PORT_") || rest.contains("_PORT_");
    is_port || rest.ends_with("_PORT") || rest.contains("SERVICE_")
}

const PREFIX: &str = "POINTSMAN_";

const KNOWN: [&str; 3] = ["POINTSMAN_DATA", "POINTSMAN_URL", "POINTSMAN_TOKEN_FILE"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_is_told() {
        let check = |name: &str, expected: Option<&str>| {
            let found = strange(&[(name.to_owned(), "S3CR3T".to_owned())].into());
            let hint = found.first().and_then(|located| located.mistake.hint.as_deref());
            assert_eq!(hint, expected, "{name}");
        };
        check("POINTSMAN_ADMIN_BIND", Some("did you mean POINTSMAN__ADMIN__BIND?"));
        check("POINTSMAN_admin__bind", Some("did you mean POINTSMAN__ADMIN__BIND?"));
        check("POINTSMAN_GRACE", Some("did you mean POINTSMAN__GRACE?"));
        check("POINTSMAN_DATA_DIR", Some("did you mean POINTSMAN__DATA_DIR?"));
        let url = Some("did you mean POINTSMAN__BACKENDS__INFLUX__URL?");
        check("POINTSMAN_BACKENDS_INFLUX_URL", url);
        check("POINTSMAN_BACKENDS__INFLUX__URL", url);
        let general = "a key is overridden by POINTSMAN__SECTION__KEY, with two underscores";
        check("POINTSMAN_CONFIG", Some(general));
        check("POINTSMAN_ADMINISTRATOR", Some(general));
        for name in [
            "POINTSMAN__ADMIN__BIND",
            "POINTSMAN_DATA",
            "POINTSMAN_URL",
            "POINTSMAN_PORT",
            "POINTSMAN_PORT_8125_UDP_ADDR",
            "POINTSMAN_SERVICE_HOST",
            "POINTSMAN_ADMIN_SERVICE_PORT_HTTP",
            "POINTSMAN",
            "PATH",
        ] {
            check(name, None);
        }
    }
}
