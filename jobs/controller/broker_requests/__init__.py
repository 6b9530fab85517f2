"""Between a controller that stays and the brokers: what it tells them, what they answer, what they are told again."""
