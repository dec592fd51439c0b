//! The driver of RocketMQ 5's Rust client: `driver produce|simple --name value ...`, events as JSON lines on stdout, where
//! the client writes its log as well. The options are those of java5/Grpc*.java. A consumer ends when its stdin does.
//! The client has no push consumer, takes no message back and keeps delivery times in whole seconds.

use std::any::Any;
use std::collections::HashMap;
use std::error::Error;
use std::io::{stdout, Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::task::JoinHandle;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(15); // the client's own is 3 s
const AWAIT: Duration = Duration::from_secs(5);
const BATCH: i32 = 4;

type Failure = Box<dyn Error + Send + Sync>;

/// `--name value` pairs.
struct Given(HashMap<String, String>);

impl Given {
    fn of(arguments: &[String]) -> Self {
        let pairs = arguments.chunks_exact(2);
        Given(pairs.map(|pair| (pair[0].trim_start_matches("--").to_string(), pair[1].clone())).collect())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn need(&self, name: &str) -> Result<&str, Failure> {
        self.text(name).ok_or_else(|| format!("--{name} is missing").into())
    }

    fn number(&self, name: &str, otherwise: i64) -> i64 {
        self.text(name).map_or(otherwise, |value| value.parse().expect(name))
    }

    fn is(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    /// What every client is made with: without --access-key it signs nothing. It has no TLS.
    fn client(&self) -> Result<ClientOption, Failure> {
        let mut option = ClientOption::default();
        option.set_access_url(self.need("endpoints")?);
        option.set_timeout(ANSWER_TIMEOUT);
        option.set_long_polling_timeout(AWAIT);
        if let Some(key) = self.text("access-key") {
            option.set_access_key(key);
            option.set_secret_key(self.need("secret-key")?);
        }
        Ok(option)
    }
}

/// One event as one line; it is written before this returns.
fn emit(event: &str, mut fields: Value) {
    fields["event"] = json!(event);
    fields["wall_ms"] = json!(since_1970().as_millis() as u64);
    let mut out = stdout().lock();
    out.write_all(format!("{fields}\n").as_bytes()).and_then(|()| out.flush()).expect("stdout");
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970")
}

fn seq_of(view: &MessageView) -> i64 {
    view.properties()["seq"].parse().expect("seq")
}

/// --messages of them, --keys in turn as message groups (0: none), --first number; --delay-ms until they are delivered;
/// with --transactions each is sent in one: by its number modulo 3 it is committed (0), rolled back (1), or left to the
/// broker's question (2), answered with a commit until stdin ends.
async fn produce(given: &Given) -> Result<Option<Producer>, Failure> {
    let topic = given.need("topic")?;
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    let asked = |_: String, view: MessageView| {
        emit("asked", json!({"seq": seq_of(&view)}));
        TransactionResolution::COMMIT
    };
    let mut producer = Producer::new_transaction_producer(option, given.client()?, Box::new(asked))?;
    producer.start().await?;
    let (first, transactions) = (given.number("first", 0), given.is("transactions"));
    for seq in first..first + given.number("messages", 1) {
        let keys = given.number("keys", 0);
        let key = (keys > 0).then(|| format!("key-{}", seq % keys.max(1)));
        let mut builder = MessageBuilder::builder()
            .set_topic(topic)
            .set_body(seq.to_string().into_bytes())
            .set_properties(HashMap::from([("seq", seq.to_string())]));
        if let Some(key) = &key {
            builder = builder.set_message_group(key);
        }
        if given.text("delay-ms").is_some() {
            let delay = Duration::from_millis(given.number("delay-ms", 0) as u64);
            builder = builder.set_delivery_timestamp((since_1970() + delay).as_secs() as i64);
        }
        let sent = |id: &str| emit("sent", json!({"topic": topic, "seq": seq, "key": key, "msgId": id}));
        if transactions {
            let transaction = producer.send_transaction_message(builder.enable_transaction().build()?).await?;
            sent(transaction.message_id());
            match seq % 3 {
                0 => transaction.commit().await?,
                1 => transaction.rollback().await?,
                _ => {}
            }
        } else {
            sent(producer.send(builder.build()?).await?.message_id());
        }
    }
    if transactions {
        return Ok(Some(producer));
    }
    producer.shutdown().await?;
    Ok(None)
}

/// --invisible-s; it receives on a task of its own.
async fn simple(given: Arc<Given>) -> Result<JoinHandle<()>, Failure> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![given.need("topic")?]);
    option.set_consumer_group(given.need("group")?);
    let mut consumer = SimpleConsumer::new(option, given.client()?)?;
    consumer.start().await?;
    Ok(tokio::spawn(async move {
        loop {
            if let Err(error) = receive(&consumer, &given).await {
                emit("failed", json!({"error": error.to_string()}));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }))
}

async fn receive(consumer: &SimpleConsumer, given: &Given) -> Result<(), Failure> {
    let invisible = Duration::from_secs(given.number("invisible-s", 15) as u64);
    let all = FilterExpression::new(FilterType::Tag, "*");
    for view in consumer.receive_with(given.need("topic")?, &all, BATCH, invisible).await? {
        handle(&view, given).await;
        consumer.ack(&view).await?;
        emit("acked", json!({"msgId": view.message_id()}));
    }
    Ok(())
}

/// Handle a message as --hang-at says; it is said before it is acknowledged.
async fn handle(view: &MessageView, given: &Given) {
    let seq = seq_of(view);
    if seq == given.number("hang-at", -1) {
        emit("hangs", json!({"seq": seq}));
        std::future::pending::<()>().await;
    }
    let fields = json!({
        "topic": view.topic(),
        "msgId": view.message_id(),
        "key": view.message_group(),
        "tags": view.tag(),
        "seq": seq,
        "body": String::from_utf8_lossy(view.body()),
        "attempt": view.delivery_attempt(),
        "status": "SUCCESS",
    });
    emit("handled", fields);
}

async fn run(arguments: Vec<String>) -> Result<(), Failure> {
    let given = Arc::new(Given::of(&arguments[2..]));
    let running: Option<Box<dyn Any>> = match arguments[1].as_str() {
        "produce" => produce(&given).await?.map(|producer| Box::new(producer) as Box<dyn Any>),
        "simple" => Some(Box::new(simple(given).await?)),
        other => return Err(format!("the client has no {other}").into()),
    };
    emit(if running.is_some() { "ready" } else { "done" }, json!({}));
    if running.is_some() {
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        emit("closed", json!({}));
    }
    Ok(())
}

#[tokio::main]
async fn main() {
    let ended = run(std::env::args().collect()).await;
    if let Err(error) = &ended {
        emit("failed", json!({"error": error.to_string()}));
    }
    // At once: the client's tasks would keep the process for their long polls.
    std::process::exit(ended.is_err().into());
}
