wake_head()
return 0
