pass_on()
return budget > 0 and 0 or -2
