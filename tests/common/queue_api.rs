//! What stands in for the queue of a Taskcluster: artifacts by task and run, as it would answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The queue, and beside it, at another port, where artifacts are kept.
pub struct QueueApi {
    shared: Arc<Shared>,
    url: String,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    /// What a request for a path is answered with; the last one again and again.
    answers: Mutex<BTreeMap<String, Vec<Answer>>>,
    received: Mutex<Vec<(String, HeaderMap)>>,
    store: Mutex<String>,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    hangs: bool,
}

impl Answer {
    pub fn status(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Vec::new(), hangs: false }
    }

    /// It never comes.
    pub fn hang() -> Answer {
        Answer { hangs: true, ..Answer::status(200) }
    }

    pub fn header(mut self, name: &str, value: &str) -> Answer {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(self, body: impl Into<Vec<u8>>) -> Answer {
        Answer { body: body.into(), ..self }
    }
}

impl QueueApi {
    pub async fn start() -> QueueApi {
        let shared = Arc::<Shared>::default();
        let mut tasks = JoinSet::new();
        let mut urls = Vec::new();
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            urls.push(format!("http://{}", listener.local_addr().unwrap()));
            let app = Router::new().fallback(answer).with_state(Arc::clone(&shared));
            tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
        }
        let (url, store) = (urls[0].clone(), urls[1].clone());
        *shared.store.lock().unwrap() = store;
        QueueApi { shared, url, _tasks: tasks }
    }

    /// What is configured as `root_url`.
    pub fn root_url(&self) -> String {
        self.url.clone()
    }

    /// Where artifacts are kept.
    pub fn store_url(&self) -> String {
        self.shared.store.lock().unwrap().clone()
    }

    /// An artifact, as an object that is kept elsewhere.
    pub fn put(&self, task: &str, run: u16, name: &str, kept: Answer) {
        let place = format!("/kept/{task}/{run}/{name}");
        let location = format!("{}{place}?signature=x", self.store_url());
        let lead = Answer::status(303)
            .header("location", &location)
            .header("x-taskcluster-artifact-storage-type", "s3")
            .body(format!(r#"{{"storageType":"s3","url":"{location}"}}"#));
        self.answer(&artifact(task, run, name), [lead]);
        self.answer(&place, [kept]);
    }

    /// What the queue answers when it is asked for an artifact, one time after the other.
    pub fn say(&self, task: &str, run: u16, name: &str, answers: impl IntoIterator<Item = Answer>) {
        self.answer(&artifact(task, run, name), answers);
    }

    fn answer(&self, path: &str, answers: impl IntoIterator<Item = Answer>) {
        let answers = answers.into_iter().collect();
        self.shared.answers.lock().unwrap().insert(path.to_owned(), answers);
    }

    /// The requests so far whose path has this in it, with their headers.
    pub fn received(&self, part: &str) -> Vec<(String, HeaderMap)> {
        let received = self.shared.received.lock().unwrap();
        received.iter().filter(|(path, _)| path.contains(part)).cloned().collect()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    shared.received.lock().unwrap().push((path.clone(), request.headers().clone()));
    let answer = {
        let mut answers = shared.answers.lock().unwrap();
        match answers.get_mut(&path) {
            Some(left) if left.len() > 1 => left.remove(0),
            Some(left) => left[0].clone(),
            None => Answer::status(404)
                .body(r#"{"code":"ResourceNotFound","message":"Artifact not found"}"#),
        }
    };
    if answer.hangs {
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap();
    for (name, value) in answer.headers {
        let name = axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

fn artifact(task: &str, run: u16, name: &str) -> String {
    format!("/api/queue/v1/task/{task}/runs/{run}/artifacts/{name}")
}
