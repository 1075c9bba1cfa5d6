include!(concat!(env!("CANDLE_EXAMPLES"), "/examples/mistral/main.rs"));
