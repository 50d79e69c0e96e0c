wake_head()
return 1
