//! The adapter between the Redis brain and the client library.

use std::sync::Arc;

use async_trait::async_trait;
use redis::{Cmd, RedisError, Value};
use tenure_redis_support::{ExecError, RedisExecutor, Reply, ScriptCall};

use crate::link::Link;

#[async_trait]
impl RedisExecutor for Link {
    fn driver(&self) -> &'static str {
        "redis"
    }

    async fn evalsha(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        self.request(&script("EVALSHA", call.script.sha1(), call)).await.and_then(reply)
    }

    async fn eval(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        self.request(&script("EVAL", call.script.source(), call)).await.and_then(reply)
    }

    async fn command(&self, args: &[&str]) -> Result<Reply, ExecError> {
        let mut command = Cmd::new();
        args.iter().for_each(|arg| {
            command.arg(arg);
        });
        self.request(&command).await.and_then(reply)
    }

    async fn close(&self) {
        Self::close(self).await;
    }
}

fn script(verb: &str, which: &str, call: &ScriptCall) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(which).arg(call.keys.len());
    call.keys.iter().chain(call.args.iter()).for_each(|arg| {
        command.arg(arg);
    });
    command
}

fn reply(value: Value) -> Result<Reply, ExecError> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Bytes(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Reply::Bytes(text.into_bytes()),
        Value::Okay => Reply::Bytes(b"OK".to_vec()),
        Value::Array(values) => Reply::Array(values.into_iter().map(reply).collect::<Result<_, _>>()?),
        Value::ServerError(error) => {
            return Err(ExecError::Server {
                code: error.code().to_owned(),
                message: error.details().unwrap_or_default().to_owned(),
            });
        }
        _ => return Err(ExecError::Protocol { message: "the server answered with an unexpected type".into() }),
    })
}

/// What the library's error says about the fate of the request. `on_the_way` says how it failed if not by refusal.
pub(crate) fn failure(error: RedisError, on_the_way: impl FnOnce(String, RedisError) -> ExecError) -> ExecError {
    if let redis::ErrorKind::AuthenticationFailed = error.kind() {
        return ExecError::Server { code: "WRONGPASS".into(), message: error.to_string() };
    }
    match error.code() {
        Some(code) => {
            ExecError::Server { code: code.to_owned(), message: error.detail().unwrap_or_default().to_owned() }
        }
        None if error.kind() == redis::ErrorKind::Parse => {
            ExecError::Protocol { message: "the server answered something that is not the Redis protocol".into() }
        }
        None => on_the_way(error.to_string(), error),
    }
}

/// The request did not leave.
pub(crate) fn not_sent(message: String, error: RedisError) -> ExecError {
    ExecError::NotSent { message, source: Some(Arc::new(error)) }
}

/// The request may have left.
pub(crate) fn unknown(message: String, error: RedisError) -> ExecError {
    ExecError::SentUnknown {
        message: format!("the link broke before the reply: {message}"),
        source: Some(Arc::new(error)),
    }
}
