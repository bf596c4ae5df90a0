//! Peers that only listen, and keep what they hear: [`UdpSink`] and [`TcpSink`].

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

/// Keeps each datagram.
pub struct UdpSink {
    address: SocketAddr,
    datagrams: Arc<Mutex<Vec<Vec<u8>>>>,
    // Dropping the set ends the task that listens.
    task: JoinSet<()>,
}

impl UdpSink {
    pub async fn start() -> UdpSink {
        UdpSink::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn start_at(address: SocketAddr) -> UdpSink {
        UdpSink::on(UdpSocket::bind(address).await.unwrap())
    }

    /// Keeps what arrives at a socket that was bound elsewhere, in another network perhaps.
    pub fn on(socket: UdpSocket) -> UdpSink {
        let address = socket.local_addr().unwrap();
        let datagrams = Arc::default();
        let mut task = JoinSet::new();
        task.spawn(keep_datagrams(socket, Arc::clone(&datagrams)));
        UdpSink { address, datagrams, task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening; answers all the lines that it has heard. Nobody listens from then on.
    pub async fn close(mut self) -> Vec<String> {
        self.task.shutdown().await;
        self.lines()
    }

    /// The datagrams so far, in order.
    pub fn datagrams(&self) -> Vec<Vec<u8>> {
        self.datagrams.lock().unwrap().clone()
    }

    /// The lines of all datagrams so far, in order.
    pub fn lines(&self) -> Vec<String> {
        self.datagrams().iter().flat_map(|datagram| lines_of(datagram)).collect()
    }
}

async fn keep_datagrams(socket: UdpSocket, datagrams: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut buffer = vec![0; LARGEST_DATAGRAM];
    while let Ok(length) = socket.recv(&mut buffer).await {
        datagrams.lock().unwrap().push(buffer[..length].to_vec());
    }
}

/// Keeps the bytes of each connection.
pub struct TcpSink {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Vec<u8>>>>,
    // Dropping the set closes the listener and every connection.
    _task: JoinSet<()>,
}

impl TcpSink {
    pub async fn start() -> TcpSink {
        TcpSink::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    /// Listens where an earlier sink did, as a peer that comes back.
    pub async fn start_at(address: SocketAddr) -> TcpSink {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::default();
        let mut task = JoinSet::new();
        task.spawn(keep_connections(listener, Arc::clone(&connections)));
        TcpSink { address, connections, _task: task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What each connection has sent so far, in the order they came.
    pub fn connections(&self) -> Vec<Vec<u8>> {
        self.connections.lock().unwrap().clone()
    }

    /// The lines of all connections so far.
    pub fn lines(&self) -> Vec<String> {
        self.connections().iter().flat_map(|bytes| lines_of(bytes)).collect()
    }
}

async fn keep_connections(listener: TcpListener, connections: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut readers = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let index = {
            let mut connections = connections.lock().unwrap();
            connections.push(Vec::new());
            connections.len() - 1
        };
        readers.spawn(keep_bytes(stream, index, Arc::clone(&connections)));
    }
}

async fn keep_bytes(mut stream: TcpStream, index: usize, connections: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        connections.lock().unwrap()[index].extend_from_slice(&buffer[..length]);
    }
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

const LARGEST_DATAGRAM: usize = 65_535;
