
return {
  settle = settle_other, forget = forget, prepare = prepare, put_held = put_held, listen = listen,
  watch_over = watch_over, wake_if_sooner = wake_if_sooner,
}
