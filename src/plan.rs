//! The plan: a configuration that was judged as a whole and found good.
//!
//! Names are resolved, secrets read, addresses and numbers checked. Nothing downstream sees a
//! configuration that it would have to check. All mistakes are reported together, and a plan
//! that cannot be made changes nothing. Two plans can be compared section by section, which is
//! how a reload finds out what may stay.

mod backends;
mod describe;
mod errors;
mod folders;
mod listeners;
mod principals;
mod pulse;
mod routes;

pub use crate::config::Backend;
pub use describe::conditions;

use crate::access::{Access, Meters};
use crate::config::{self, Inputs, Loaded, Report, Sections, is_name};
use crate::mistake::Mistake;
use crate::route::{self, Rules};
use crate::tls::Problem;
use crate::{access, admin, ingest};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What the gateway is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where the embedded store lives.
    pub data_dir: PathBuf,
    /// How long a stop may take: flushing windows, draining queues.
    pub grace: Duration,
    /// Where errors of listeners go that do not say so themselves.
    pub errors: Option<crate::errors::Config>,
    /// The admin listener.
    pub admin: admin::Config,
    /// By name.
    pub listeners: BTreeMap<String, ingest::Config>,
    /// By name; without any, anyone may write anything.
    pub principals: BTreeMap<String, access::Config>,
    /// By name.
    pub backends: BTreeMap<String, Backend>,
    /// In the order in which they are tried.
    pub routes: Vec<route::Config>,
}

/// A plan, and what is allowed in it and probably not meant.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Not an error, but worth a look.
    pub warnings: Report,
}

impl Plan {
    /// The same plan without anything in it: what a gateway has before its start.
    #[must_use]
    pub fn emptied(self) -> Self {
        Self {
            errors: None,
            admin: admin::Config { bind: String::new(), tls: None },
            listeners: BTreeMap::new(),
            principals: BTreeMap::new(),
            backends: BTreeMap::new(),
            routes: Vec::new(),
            ..self
        }
    }

    /// The routes as they are tried, with their names: first those of [errors](Self::error_routes).
    pub fn all_routes(&self) -> Vec<route::Config> {
        let own = self.routes.iter().enumerate();
        let own = own.map(|(index, route)| route::Config {
            name: Some(route.name_at(index)),
            ..route.clone()
        });
        self.error_routes().into_iter().chain(own).collect()
    }

    /// [All of them](Self::all_routes), compiled; a lane's place is that of its backend in [`backends`](Self::backends).
    ///
    /// # Errors
    ///
    /// What is wrong with a plan that [`load`](Self::load) has not made.
    pub fn rules(&self) -> Result<Rules, String> {
        let places = self.backends.keys().cloned().zip(0..).collect();
        Rules::compile(&self.all_routes(), &places).map_err(|mistakes| {
            let texts: Vec<_> = mistakes.iter().map(|mistake| mistake.message.as_str()).collect();
            texts.join("; ")
        })
    }

    /// Who may write what, and in `meters` how much of it they have.
    pub fn access(&self, meters: &Meters) -> Access {
        let own = self.listeners.iter();
        let own =
            own.filter_map(|(name, listener)| Some((&**name, listener.principal.as_deref()?)));
        Access::new(&self.principals, own, meters)
    }

    /// Reads a configuration and makes a plan of it.
    ///
    /// # Errors
    ///
    /// All mistakes, each with its place.
    pub fn load(inputs: &Inputs) -> Result<Planned, Box<Report>> {
        let Loaded { sections, mut mistakes, mut warnings, sources, readable } =
            config::load(inputs);
        let mut findings = Findings::default();
        let plan = readable.then(|| judge(sections, inputs, &mut findings)).flatten();
        mistakes.extend(config::new_only(&mistakes, findings.mistakes, &sources));
        warnings.extend(config::new_only(&[], findings.warnings, &sources));
        match plan.filter(|_| mistakes.is_empty()) {
            Some(plan) => Ok(Planned { plan, warnings: Report::warnings(warnings, sources) }),
            None => Err(Box::new(Report::errors(mistakes, sources))),
        }
    }
}

/// What the rooms of the plan have found so far.
#[derive(Debug, Default)]
struct Findings {
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
}

impl Findings {
    fn wrong(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.mistakes.push(Mistake::new(key, message));
    }

    fn wrong_unless(&mut self, holds: bool, key: impl Into<String>, message: impl Into<String>) {
        if !holds {
            self.wrong(key, message);
        }
    }

    fn odd(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(Mistake::new(key, message));
    }

    /// What is wrong, or only odd, with the files of a `tls` block.
    fn files(&mut self, section: &str, found: Result<Vec<Problem>, Problem>) {
        let key_of = |problem: &Problem| format!("{section}.tls.{}", problem.key);
        match found {
            Ok(oddities) => {
                for problem in oddities {
                    self.odd(key_of(&problem), problem.message);
                }
            }
            Err(problem) => self.wrong(key_of(&problem), problem.message),
        }
    }

    fn names<'a>(&mut self, section: &str, names: impl Iterator<Item = &'a String>) {
        for name in names.filter(|name| !is_name(name)) {
            let hint = "names are made of a-z, 0-9 and _, and begin with a letter";
            self.mistakes.push(
                Mistake::new(format!("{section}.{name}"), format!("`{name}` cannot be a name"))
                    .hint(hint),
            );
        }
    }
}

/// Judges what could be decoded, so that the mistakes join those of decoding. There is a plan
/// only if everything could be decoded.
fn judge(mut sections: Sections, inputs: &Inputs, findings: &mut Findings) -> Option<Plan> {
    listeners::judge(&sections, findings);
    folders::judge(&sections, findings);
    pulse::judge(&mut sections, findings);
    principals::judge(&mut sections, findings);
    backends::judge(&mut sections.backends, findings);
    errors::judge(&sections, findings);
    routes::judge(&sections, findings);
    Some(Plan {
        data_dir: data_dir(&sections, inputs),
        grace: sections.grace.map_or(GRACE, |grace| grace.0),
        errors: sections.errors,
        admin: sections.admin,
        listeners: whole(sections.listeners)?,
        principals: whole(sections.principals)?,
        backends: whole(sections.backends)?,
        routes: sections.routes.into_iter().collect::<Option<_>>()?,
    })
}

fn whole<T>(sections: BTreeMap<String, Option<T>>) -> Option<BTreeMap<String, T>> {
    sections.into_iter().map(|(name, section)| Some((name, section?))).collect()
}

/// `--data-dir`, else `data_dir`, else what the environment says, else a directory right here.
fn data_dir(sections: &Sections, inputs: &Inputs) -> PathBuf {
    let variable = |name: &str| inputs.environment.get(name).filter(|value| !value.is_empty());
    // systemd names several directories with colons between them; the first is the state's.
    let state = || variable("STATE_DIRECTORY").and_then(|dirs| dirs.split(':').next());
    let from_environment =
        || variable("POINTSMAN_DATA").map(String::as_str).or_else(state).map(PathBuf::from);
    inputs
        .data_dir
        .clone()
        .or_else(|| sections.data_dir.clone())
        .or_else(from_environment)
        .unwrap_or_else(|| PathBuf::from("./pointsman-data"))
}

/// Long enough for a healthy backend, and below the patience of what starts and stops services.
const GRACE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan of a text in TOML, or its mistakes, one line each without the file's name.
    pub(super) fn plan_of(text: &str) -> Result<Planned, Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.toml");
        std::fs::write(&file, text).unwrap();
        let inputs = Inputs { files: vec![file.clone()], ..Inputs::default() };
        let prefix = format!("{}:", file.display());
        let short = |line: String| line.replace(&prefix, "");
        Plan::load(&inputs).map_err(|report| report.lines().into_iter().map(short).collect())
    }

    /// Each of the texts must be found in one line of the report, and there are no others.
    #[track_caller]
    pub(super) fn refused(text: &str, says: &[&str]) {
        let lines = plan_of(text).unwrap_err();
        assert_eq!(lines.len(), says.len(), "{lines:#?}");
        for (line, says) in lines.iter().zip(says) {
            assert!(line.contains(says), "{line:?} does not say {says:?}");
        }
    }

    #[track_caller]
    pub(super) fn warned(text: &str, says: &[&str]) {
        let lines = plan_of(text).unwrap().warnings.lines();
        assert_eq!(lines.len(), says.len(), "{lines:#?}");
        for (line, says) in lines.iter().zip(says) {
            assert!(line.contains(says), "{line:?} does not say {says:?}");
        }
    }

    #[test]
    fn the_data_directory_is_where_it_was_said_last() {
        let check = |option: Option<&str>,
                     file: Option<&str>,
                     variables: &[(&str, &str)],
                     expected| {
            let environment =
                variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let inputs =
                Inputs { data_dir: option.map(PathBuf::from), environment, ..Inputs::default() };
            let sections = Sections { data_dir: file.map(PathBuf::from), ..Sections::default() };
            assert_eq!(data_dir(&sections, &inputs), PathBuf::from(expected));
        };
        let both = [("POINTSMAN_DATA", "/env"), ("STATE_DIRECTORY", "/state:/other")];
        check(Some("/option"), Some("/file"), &both, "/option");
        check(None, Some("/file"), &both, "/file");
        check(None, None, &both, "/env");
        check(None, None, &both[1..], "/state");
        check(None, None, &[("POINTSMAN_DATA", "")], "./pointsman-data");
    }

    #[test]
    fn mistakes_of_decoding_and_of_judging_come_together() {
        refused(
            "[listeners.s]\nprotocol = \"http\"\nbind = [\"tcp://h:1\"]\n\
             [backends.a]\nkind = \"influxdb\"\ntokn = \"S3CR3T\"\nurl = \"\"\ndatabase = \"d\"\n\
             [[routes]]\nto = [\"b\"]\n[[routes]]\nnam = 1\nto = [\"a\"]\n",
            &[
                "6:1: backends.a.tokn: unknown key `tokn` (did you mean `token`?)",
                "7:1: backends.a.url: the URL is empty",
                "10:7: routes[0].to[0]: there is no backend `b`",
                "12:1: routes[1].nam: unknown key `nam`",
            ],
        );
    }

    #[test]
    fn an_unreadable_file_is_the_only_thing_to_say() {
        refused("[listeners.s]\nbind = [\n", &["2:9: unclosed array"]);
    }
}
