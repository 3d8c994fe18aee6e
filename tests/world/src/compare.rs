//! Whether the model of Redis answers as a real one: to random commands, and to the scripts in random worlds.

use std::time::Duration;

use redis::Value;
use tollgate::redis::Scripted;

use crate::random::Random;
use crate::server::Server;
use crate::store::{Memory, Redis};
use crate::world::{Fault, Scenario, begin};

const STEPS: u64 = 20_000;

/// Calls what its arguments say. The server's time is the model's.
const CALL: &str = "local time = redis.call('TIME')
local reply = redis.call(unpack(ARGV))
if type(reply) == 'table' and reply.ok then reply = reply.ok end
return {time[1], time[2], reply}";

/// The time and when a key expires, in milliseconds.
const DIES: &str = "local time, left = redis.call('TIME'), redis.call('PTTL', KEYS[1])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return {now, left < 0 and 0 or now + left}";

/// Packs numbers and a string, and unpacks them.
const PACK: &str = "local format, text, values = ARGV[1], ARGV[2], {}
for at = 3, #ARGV do values[#values + 1] = tonumber(ARGV[at]) end
values[#values + 1] = text
local bytes = struct.pack(format, unpack(values))
local replies = {struct.unpack(format, bytes)}
for at = 1, #replies do
  if type(replies[at]) == 'number' then replies[at] = string.format('%.17g', replies[at]) end
end
return {bytes, replies}";

fn evaluate(
    connection: &mut redis::Connection,
    text: &str,
    keys: &[&str],
    arguments: &[Vec<u8>],
) -> Value {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys).arg(arguments);
    command.query(connection).expect("an answer")
}

fn number(value: &Value) -> u64 {
    let Value::BulkString(text) = value else { panic!("no number: {value:?}") };
    String::from_utf8_lossy(text).parse().expect("a number")
}

/// Times to live are so short that keys expire now and then.
#[test]
fn commands_are_answered_as_by_redis() {
    let (server, redis, mut random) = (Server::start(), Redis::new(), Random(1));
    let (mut connection, mut memory) = (server.connection(), Memory::default());
    let (mut steps, mut expired) = (0, 0);
    while steps < STEPS || expired < 20 {
        let key = ["one", "other"][random.below(2) as usize];
        let mut text =
            |most| -> Vec<u8> { (0..random.below(most)).map(|_| random.next() as u8).collect() };
        let (value, piece) = (text(20), text(5));
        let digits = |number: u64| number.to_string().into_bytes();
        let word = |word: &str| word.as_bytes().to_vec();
        let arguments = match random.below(6) {
            0 => vec![word("GET"), word(key)],
            1 => vec![word("SET"), word(key), value, word("PX"), digits(1 + random.below(5))],
            2 => vec![word("SET"), word(key), value, word("PX"), digits(1 + random.below(5_000))],
            3 => vec![word("SET"), word(key), value, word("KEEPTTL")],
            4 => vec![word("SETRANGE"), word(key), digits(random.below(30)), piece],
            _ => vec![word("DEL"), word(key)],
        };
        let theirs = evaluate(&mut connection, CALL, &[key], &arguments);
        let Value::Array(parts) = &theirs else { panic!("{theirs:?}") };
        let now = Duration::from_secs(number(&parts[0])) + Duration::from_micros(number(&parts[1]));
        let before = memory.dies(key);
        let ours = redis.evaluate(&mut memory, now, (CALL, CALL), (key, &arguments));
        expired += u32::from(before > 0 && before < now.as_millis() as u64);
        assert_eq!(ours, theirs, "{arguments:?}");
        let dies = evaluate(&mut connection, DIES, &[key], &[]);
        let (now, theirs): (u64, u64) = redis::from_redis_value(dies).expect("two times");
        let ours = memory.dies(key);
        let has_expired = theirs == 0 && ours <= now;
        assert!(ours.abs_diff(theirs) <= 1 || has_expired, "{ours} {theirs} {arguments:?}");
        steps += 1;
    }
}

#[test]
fn numbers_are_packed_as_by_redis() {
    let (server, redis, mut random) = (Server::start(), Redis::new(), Random(2));
    let (mut connection, mut memory) = (server.connection(), Memory::default());
    for _ in 0..STEPS {
        let (mut format, mut arguments) = ("<".to_owned(), Vec::new());
        for _ in 0..random.below(6) {
            let bits = random.below(52);
            let whole = (random.next() >> (63 - bits)) as f64;
            let sign = if random.below(4) == 0 { -1.0 } else { 1.0 };
            let (item, value) = match random.below(4) {
                0 => ("B".to_owned(), whole % 256.0),
                1 => (format!("I{}", 1 + random.below(7)), sign * whole),
                2 => (format!("I{}", 1 + random.below(7)), whole / 8.0),
                _ => ("d".to_owned(), sign * whole / (1 + random.below(1_000)) as f64),
            };
            format += &item;
            arguments.push(format!("{value:?}").into_bytes());
        }
        let text: Vec<u8> = (0..8 + random.below(8)).map(|_| random.next() as u8).collect();
        format += ["c8", "c0"][random.below(2) as usize];
        if format.ends_with("c0") {
            // As long as all that is left, so it can only be packed.
            format = format.replace("c0", "c4");
        }
        arguments.splice(0..0, [format.into_bytes(), text]);
        let theirs = evaluate(&mut connection, PACK, &[], &arguments);
        let ours = redis.evaluate(&mut memory, Duration::ZERO, (PACK, PACK), ("", &arguments));
        assert_eq!(
            ours,
            theirs,
            "{:?}",
            arguments.iter().map(|it| String::from_utf8_lossy(it)).collect::<Vec<_>>()
        );
    }
}

/// Random ways through the world of a scenario: the server gives the same replies as the model.
pub(crate) fn compare<P: Scripted<Cost = u32>>(scenario: &Scenario<P>) {
    let server = Server::start();
    let mut connection = server.connection();
    let faults = vec![Fault::Refuse, Fault::Cut, Fault::Silence, Fault::Cancel, Fault::Crash];
    let scenario = Scenario { ticks: 20, most_faults: 3, faults, ..scenario.clone() };
    let mut compared = 0;
    for seed in 0..500 {
        let key = format!("key:{seed}");
        let executed = begin(&scenario, &Redis::new(), |world| {
            world.executed = Some(Vec::new());
            let mut random = Random(seed);
            loop {
                let events = world.events();
                if events.is_empty() {
                    break;
                }
                world.act(events[random.below(events.len() as u64) as usize]);
            }
            world.executed.take().expect("they are kept")
        });
        for (request, now, ours) in executed {
            let now = [now.as_secs().to_string(), now.subsec_micros().to_string()];
            let theirs = evaluate(
                &mut connection,
                &with_the_time(request.script.text()),
                &[&key, &now[0], &now[1]],
                &request.arguments,
            );
            assert_eq!(ours, theirs, "seed {seed}");
            compared += 1;
        }
    }
    assert!(compared > 800, "only {compared} requests");
    println!("{compared} requests are answered as by Redis");
}

/// As the script, but at this time, and with a key that expires by it.
fn with_the_time(text: &str) -> String {
    let lines = [
        ("local time = redis.call('TIME')", "local time = {KEYS[2], KEYS[3]}"),
        (
            "local blob = redis.call('GET', key)",
            "local dies = redis.call('GET', key .. ':dies')
             if dies and math.floor(now / 1000) > tonumber(dies) then redis.call('DEL', key, key .. ':dies') end
             local blob = redis.call('GET', key)",
        ),
        (
            "redis.call('SET', key, value, 'PX', milliseconds)",
            "redis.call('SET', key, value)
             redis.call('SET', key .. ':dies', string.format('%.0f', math.floor(now / 1000) + milliseconds))",
        ),
    ];
    lines.iter().fold(text.to_owned(), |text, (line, ours)| {
        assert!(text.contains(line), "{line} is not in\n{text}");
        text.replace(line, ours)
    })
}
