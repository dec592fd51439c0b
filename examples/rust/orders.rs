// A test of a service with the crate rocketmq, of RocketMQ 5. It starts `lockstep-broker` as a process, without a
// container; it ends when its stdin is dropped.

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::{Producer, SimpleConsumer};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::{net::TcpStream, time::Duration};

fn control(address: &str, call: serde_json::Value) {
    let mut port = TcpStream::connect(address).unwrap();
    writeln!(port, "{call}").unwrap();
    let answer = BufReader::new(port).lines().next().unwrap().unwrap();
    assert!(answer.starts_with("{\"ok\": true"), "{answer}");
}

#[tokio::main]
async fn main() {
    let options = "--port 0 --name-server-port 0 --grpc-port 0 --control-port 0 --end-with-stdin --log-level warning";
    let mut broker = Command::new("lockstep-broker").args(options.split(' '))
        .stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let line = BufReader::new(broker.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let at = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(&format!("{name}="))).unwrap();
    let call = |call| control(at("control"), call);
    call(json!({"call": "create_topic", "topic": "orders"}));
    call(json!({"call": "create_group", "group": "printer", "fifo": true}));
    let mut settings = ClientOption::default();
    settings.set_access_url(at("grpc"));
    let mut option = ProducerOption::default();
    option.set_topics(vec!["orders"]);
    let mut producer = Producer::new(option, settings.clone()).unwrap();
    producer.start().await.unwrap();
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec!["orders"]);
    option.set_consumer_group("printer");
    let mut consumer = SimpleConsumer::new(option, settings).unwrap();
    consumer.start().await.unwrap();
    for step in ["created", "paid"] {
        let message = MessageBuilder::fifo_message_builder("orders", step.into(), "1001").build().unwrap();
        producer.send(message).await.unwrap();
    }
    let all = FilterExpression::new(FilterType::Tag, "*");
    let receive = || consumer.receive_with("orders", &all, 2, Duration::from_secs(15));
    for attempt in 1..=2 { // nobody acknowledges
        let got: Vec<_> = receive().await.unwrap().iter()
            .map(|one| format!("{} {}", one.delivery_attempt(), String::from_utf8_lossy(one.body()))).collect();
        assert_eq!(got, [format!("{attempt} created"), format!("{attempt} paid")]);
        call(json!({"call": "advance", "seconds": 16}));
    }
    call(json!({"call": "push_error", "codes": "ReceiveMessage", "responseCode": "FORBIDDEN"}));
    assert!(receive().await.is_err());
    call(json!({"call": "down"})); // all connections end; `up` is the same broker again
    broker.kill().unwrap();
    std::process::exit(0); // the client's tasks go on
}
