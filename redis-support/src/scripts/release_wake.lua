pass_on()
return budget > 0 and 1 or -2
