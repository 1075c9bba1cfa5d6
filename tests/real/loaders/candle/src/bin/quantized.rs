include!(concat!(env!("CANDLE_EXAMPLES"), "/examples/quantized/main.rs"));
