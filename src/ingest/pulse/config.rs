//! The keys of a listener of finished tasks, as a configuration writes them.

use super::retry::Retry;
use crate::tls::ClientSettings;
use crate::units::Secret;
use serde::Deserialize;
use std::path::PathBuf;

/// The broker that tells which tasks have ended.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broker {
    /// `amqps://host:port/vhost`, or `amqp://`; never credentials.
    pub url: String,
    /// Who we are there; the queue's name begins with it.
    pub username: String,
    /// The password; better `password_file`.
    pub password: Option<Secret>,
    /// The file that contains it.
    pub password_file: Option<PathBuf>,
    /// The last part of the queue's name: `queue/<username>/<queue>`.
    #[serde(default = "queue")]
    pub queue: String,
    /// Where the messages are published.
    #[serde(default = "exchanges")]
    pub exchanges: Vec<String>,
    /// How many messages are in hand at a time.
    #[serde(default = "prefetch")]
    pub prefetch: u16,
    /// Whom to trust and what to show, where the URL begins with `amqps://`.
    pub tls: Option<ClientSettings>,
}

/// Where the artifacts of tasks are fetched.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tasks {
    /// The Taskcluster.
    pub root_url: String,
    /// Whose credentials requests are signed with; without any they are not signed.
    pub client_id: Option<String>,
    /// The key; better `access_token_file`.
    pub access_token: Option<Secret>,
    /// The file that has it.
    pub access_token_file: Option<PathBuf>,
    /// A task route made of this word, a dot and a series says that the task has points for that series.
    #[serde(default = "route")]
    pub route: String,
    /// Names of artifacts; the first one that is there is taken.
    #[serde(default = "artifacts")]
    pub artifacts: Vec<String>,
    /// Whether artifacts are fetched that are only links, which the task may point anywhere.
    #[serde(default)]
    pub references: bool,
    /// How long to wait before a request is repeated.
    #[serde(default)]
    pub retry: Retry,
    /// Whom to trust and what to show, where URLs begin with `https://`.
    pub tls: Option<ClientSettings>,
}

impl Broker {
    /// The queue's whole name.
    pub fn queue_name(&self) -> String {
        format!("queue/{}/{}", self.username, self.queue)
    }

    /// Broker and queue, as they are shown.
    pub fn place(&self) -> String {
        format!("{}/{}", self.url.trim_end_matches('/'), self.queue_name())
    }
}

fn queue() -> String {
    "statistics".to_owned()
}

fn exchanges() -> Vec<String> {
    vec!["exchange/taskcluster-queue/v1/task-completed".to_owned()]
}

const fn prefetch() -> u16 {
    100
}

fn route() -> String {
    "statistics".to_owned()
}

fn artifacts() -> Vec<String> {
    vec!["statistics/influx-points.csv".to_owned(), "statistics/points.jsonl".to_owned()]
}
